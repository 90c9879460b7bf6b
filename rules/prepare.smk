rule prepare:
    input:
        lambda wildcards: fetched(wildcards.scene),
    output:
        PREPARED_DIGESTS,
    log:
        f"{LOGS}/prepare/{{scene}}.log",
    benchmark:
        f"{LOGS}/benchmarks/prepare/{{scene}}.tsv"
    threads: 1
    params:
        settings=stage("prepare"),
        code=code("prepare"),
        scene=lambda wildcards: SCENES[wildcards.scene],
    message:
        "prepare what images of {wildcards.scene} are rendered from"
    shell:
        "diagvib prepare {params.scene:q} --settings {params.settings:q} --root {ROOT:q} > {log:q} 2>&1"
