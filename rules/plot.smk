rule plot:
    input:
        TABLES,  # and pictures of runs and images; what changes these also changes the tables
    output:
        page=report(REPORT, category="Report", caption="report.rst"),
        figures=report(
            directory(FIGURES),
            patterns=["{kind}/{name}.png"],
            category="Figures",
            subcategory="{kind}",
            caption="figures.rst",
        ),
        explorer=directory(EXPLORER),
    log:
        f"{LOGS}/plot/plot.log",
    benchmark:
        f"{LOGS}/benchmarks/plot/plot.tsv"
    threads: 4
    params:
        settings=stage("plot"),
        code=code("plot"),
    message:
        "plot"
    shell:
        "diagvib plot --settings {params.settings:q} --root {ROOT:q} --threads {threads} > {log:q} 2>&1"
