rule train:
    input:
        DATASET,
        code=[
            *(f"src/diagvib/{module}.py" for module in ("training/run", "training/trainer", "training/adam", "training/protocol", "training/steps", "training/in_place", "training/visualisations", "training/batches", "training/checkpoints", "images/datasets", "training/accuracy", "foundation/seeding")),
            "src/diagvib/methods/method.py",
        ],
        dataset_code=DATASET_CODE,
        baseline=baseline_code,
    output:
        JOB_FILES,
        JOB_WEIGHTS,
    log:
        f"{LOGS}/train/{{baseline}}/{{study}}/{{binding}}.log",
    benchmark:
        f"{LOGS}/benchmarks/train/{{baseline}}/{{study}}/{{binding}}.tsv"
    threads: CONFIG["training"]["threads"]
    resources:
        gpu_share=GPU_SHARE,
    params:
        settings=stage("train"),
    message:
        "train {wildcards.baseline} on {wildcards.study} {wildcards.binding}"
    shell:
        "diagvib train {wildcards.baseline} {wildcards.study} {wildcards.binding} --settings {params.settings:q} "
        "--root {ROOT:q} --device {DEVICE} {KEEP_WEIGHTS} {SWITCHES} > {log:q} 2>&1"
