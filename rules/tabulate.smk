rule tabulate:
    input:
        RUNS,
        code=[*(f"src/diagvib/{module}.py" for module in ("tables", "metrics", "paper")), "config/paper_tables.csv"],
    output:
        TABLES,
    log:
        f"{LOGS}/tabulate.log",
    benchmark:
        f"{LOGS}/benchmarks/tabulate.tsv"
    threads: 1
    params:
        settings=stage("tabulate"),
    message:
        "tabulate"
    shell:
        "diagvib tabulate --settings {params.settings:q} --root {ROOT:q} > {log:q} 2>&1"
