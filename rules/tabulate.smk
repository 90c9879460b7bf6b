rule tabulate:
    input:
        RUNS,
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
        tuned=LAYOUT.tuned_tables(),  # a plain run makes none
    message:
        "tabulate"
    shell:
        "diagvib tabulate --settings {params.settings:q} --root {ROOT:q} --threads {threads} > {log:q} 2>&1"
