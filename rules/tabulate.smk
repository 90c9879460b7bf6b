rule tabulate:
    input:
        RUNS,
        TUNED_FIRST,
    output:
        report(TABLES, category="Tables", caption="tables.rst"),
        metrics=directory(METRICS),
    log:
        f"{LOGS}/tabulate/tabulate.log",
    benchmark:
        f"{LOGS}/benchmarks/tabulate/tabulate.tsv"
    threads: 4
    params:
        settings=stage("tabulate"),
        code=code("tabulate"),
        tuned=OTHER_TUNED,
    message:
        "tabulate"
    shell:
        "diagvib tabulate --settings {params.settings:q} --root {ROOT:q} --threads {threads} > {log:q} 2>&1"
