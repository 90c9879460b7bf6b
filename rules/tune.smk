rule tune:
    input:
        TUNING_DATASETS,
        code=[*rules.train.input.code, "src/diagvib/training/tuning.py"],
        dataset_code=DATASET_CODE,
        baseline=baseline_code,
    output:
        [f"{LAYOUT.tuning}/{{baseline}}.{kind}" for kind in ("csv", "yaml")],
    log:
        f"{LOGS}/tune/{{baseline}}.log",
    benchmark:
        f"{LOGS}/benchmarks/tune/{{baseline}}.tsv"
    threads: CONFIG["training"]["threads"]
    resources:
        gpu_share=GPU_SHARE,
    params:
        settings=stage("tune"),
    message:
        "tune {wildcards.baseline} on zso"
    shell:
        "diagvib tune {wildcards.baseline} --settings {params.settings:q} --root {ROOT:q} --device {DEVICE} "
        "> {log:q} 2>&1"
