rule plot:
    input:
        TABLES,
        IMAGES,
        code=[
            *(f"src/diagvib/{module}.py" for module in ("figures", "sheets", "style", "report", "tables", "paper")),
            "src/diagvib/report.html.j2",
        ],
    output:
        REPORT,
    log:
        f"{LOGS}/plot.log",
    benchmark:
        f"{LOGS}/benchmarks/plot.tsv"
    threads: 1
    params:
        settings=stage("plot"),
    message:
        "plot"
    shell:
        "diagvib plot --settings {params.settings:q} --root {ROOT:q} > {log:q} 2>&1"
