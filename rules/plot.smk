rule plot:
    input:
        # Not the images of its sheets: what changes them changes tables, and Snakemake would read all of them each time.
        TABLES,
        EXHIBITS,
        code=PLOT_CODE,
    output:
        page=report(REPORT, category="Report", caption="report.rst"),
        figures=report(directory(FIGURES), patterns=["{kind}/{name}.png"], category="Figures", subcategory="{kind}",
                       caption="figures.rst"),
    log:
        f"{LOGS}/plot.log",
    benchmark:
        f"{LOGS}/benchmarks/plot.tsv"
    threads: 4
    params:
        settings=stage("plot"),
    message:
        "plot"
    shell:
        "diagvib plot --settings {params.settings:q} --root {ROOT:q} --threads {threads} > {log:q} 2>&1"
