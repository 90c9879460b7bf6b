rule plot:
    input:
        # The pictures of the first dataset sample. The images on the sheets are not listed: what changes them also changes
        # the tables, and Snakemake would read all of them each time.
        TABLES,
        [file for file in RUNS if file.endswith("/0/exhibits.parquet")],
    output:
        page=report(REPORT, category="Report", caption="report.rst"),
        figures=report(directory(FIGURES), patterns=["{kind}/{name}.png"], category="Figures", subcategory="{kind}",
                       caption="figures.rst"),
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
