rule prepare:
    input:
        RAW,
        code=[f"src/diagvib/{module}.py" for module in ("scenes/digits/prepare", "scenes/digits/digits", "scenes/digits/textures", "scenes/digits/embedded", "foundation/seeding", "foundation/columns")],
    output:
        PREPARED,
    log:
        f"{LOGS}/prepare.log",
    benchmark:
        f"{LOGS}/benchmarks/prepare.tsv"
    threads: 1
    params:
        settings=stage("prepare"),
    message:
        "prepare digits and textures"
    shell:
        "diagvib prepare --settings {params.settings:q} --root {ROOT:q} > {log:q} 2>&1"
