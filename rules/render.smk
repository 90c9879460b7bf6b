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
    threads: 1
    params:
        settings=stage("render"),
        code=code("render"),
    message:
        "render {wildcards.study} {wildcards.binding}"
    shell:
        "diagvib render {wildcards.study} {wildcards.binding} --settings {params.settings:q} --root {ROOT:q} "
        "--threads {threads} > {log:q} 2>&1"
