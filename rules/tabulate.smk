rule tabulate:
    input:
        RUNS,
        code=TABLE_CODE,
    output:
        report(TABLES, category="Tables", caption="tables.rst"),
        metrics=directory(METRICS),
    log:
        f"{LOGS}/tabulate.log",
    benchmark:
        f"{LOGS}/benchmarks/tabulate.tsv"
    threads: 4
    params:
        settings=stage("tabulate"),
    message:
        "tabulate"
    shell:
        "diagvib tabulate --settings {params.settings:q} --root {ROOT:q} --threads {threads} > {log:q} 2>&1"
