rule fetch:
    output:
        RAW_DIGESTS,
    log:
        f"{LOGS}/fetch/{{scene}}.log",
    benchmark:
        f"{LOGS}/benchmarks/fetch/{{scene}}.tsv"
    threads: 1
    params:
        settings=stage("fetch"),
        code=code("fetch"),
        scene=lambda wildcards: SCENES[wildcards.scene],
    message:
        "fetch the source files of {wildcards.scene}"
    shell:
        "diagvib fetch {params.scene:q} --settings {params.settings:q} --root {ROOT:q} {MIRROR} > {log:q} 2>&1"
