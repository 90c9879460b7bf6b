rule encode:  # only for baselines with a frozen network
    input:
        lambda wildcards: encoded_images(wildcards.study, wildcards.binding, wildcards.network),
    output:  # stands for the other files, which stay, as does a killed job's progress
        FEATURES,
    log:
        f"{LOGS}/encode/{{network}}/{{study}}/{{binding}}.log",
    benchmark:
        f"{LOGS}/benchmarks/encode/{{network}}/{{study}}/{{binding}}.tsv"
    threads: CONFIG.training.threads
    resources:
        gpu_share=GPU_SHARES.alone,
    params:
        settings=stage("encode"),
        code=code("encode"),
    message:
        "encode {wildcards.study} {wildcards.binding} by {wildcards.network}"
    shell:
        "diagvib encode {wildcards.network} {wildcards.study} {wildcards.binding} --settings {params.settings:q} "
        "--root {ROOT:q} --device {DEVICE} "
        "--gpu-share {resources.gpu_share} {DEVICES} --threads {threads} {MIRROR} > {log:q} 2>&1"
