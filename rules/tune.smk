rule tune:
    input:
        lambda wildcards: [
            file
            for binding in CONFIG.tuning.bindings
            for file in training_data("tune", TUNING_STUDY, binding, wildcards.baseline)
        ],
    output:
        [f"{LAYOUT.tuning}/{{baseline}}.{kind}" for kind in ("csv", "yaml")],
    log:
        f"{LOGS}/tune/{{baseline}}.log",
    benchmark:
        f"{LOGS}/benchmarks/tune/{{baseline}}.tsv"
    threads: CONFIG.training.threads * GPU_SHARES.processes_alone
    resources:
        gpu_share=GPU_SHARES.alone,
    params:
        settings=stage("tune"),
        code=code("tune"),
    message:
        "tune {wildcards.baseline}"
    shell:
        "diagvib tune {wildcards.baseline} --settings {params.settings:q} --root {ROOT:q} --device {DEVICE} "
        "--gpu-share {resources.gpu_share} {DEVICES} {MIRROR} {PROCESSES} > {log:q} 2>&1"
