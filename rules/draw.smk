rule draw:
    input:
        lambda wildcards: prepared(wildcards.study),
    output:
        RECIPE_FILE,
    log:
        f"{LOGS}/draw/{{study}}/{{binding}}.log",
    benchmark:
        f"{LOGS}/benchmarks/draw/{{study}}/{{binding}}.tsv"
    threads: 1
    params:
        settings=stage("draw"),
        code=code("draw"),
    message:
        "draw {wildcards.study} {wildcards.binding}"
    shell:
        "diagvib draw {wildcards.study} {wildcards.binding} --settings {params.settings:q} --root {ROOT:q} > {log:q} 2>&1"
