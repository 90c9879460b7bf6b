rule render:
    input:
        lambda wildcards: prepared(wildcards.study),
        recipes=RECIPE_FILE,
    output:
        IMAGE_DIGESTS,
    log:
        f"{LOGS}/render/{{study}}/{{binding}}.log",
    benchmark:
        f"{LOGS}/benchmarks/render/{{study}}/{{binding}}.tsv"
    threads: lambda wildcards: 16 if drawn_on_gpu(wildcards.study) else 1
    resources:
        gpu_share=lambda wildcards: GPU_SHARES.draws * drawn_on_gpu(wildcards.study),
    params:
        settings=stage("render"),
        code=code("render"),
    message:
        "render {wildcards.study} {wildcards.binding}"
    shell:
        "diagvib render {wildcards.study} {wildcards.binding} --settings {params.settings:q} --root {ROOT:q} "
        "--device {DEVICE} "
        "--gpu-share {resources.gpu_share} {DEVICES} --threads {threads} > {log:q} 2>&1"
