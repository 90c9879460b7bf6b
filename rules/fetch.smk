rule fetch:
    input:
        code=["src/diagvib/scenes/digits/fetch.py", "config/sources.yaml"],
    output:
        RAW,
    log:
        f"{LOGS}/fetch.log",
    benchmark:
        f"{LOGS}/benchmarks/fetch.tsv"
    threads: 1
    params:
        settings=stage("fetch"),
    message:
        "fetch the source files"
    shell:
        "diagvib fetch --settings {params.settings:q} --root {ROOT:q} {MIRROR} > {log:q} 2>&1"
