rule train:
    input:
        lambda wildcards: training_data("train", wildcards.study, wildcards.binding, wildcards.baseline),
    output:
        RUN_DIGESTS,
    log:
        f"{LOGS}/train/{{baseline}}/{{study}}/{{binding}}.log",
    benchmark:
        f"{LOGS}/benchmarks/train/{{baseline}}/{{study}}/{{binding}}.tsv"
    threads: CONFIG.training.threads * GPU_SHARES.processes
    resources:
        gpu_share=GPU_SHARES.train,
    params:
        settings=stage("train"),
        code=code("train"),
    message:
        f"train {{wildcards.baseline}} on {{wildcards.study}} {{wildcards.binding}}{RUN_COUNT}"
    shell:
        "diagvib train {wildcards.baseline} {wildcards.study} {wildcards.binding} --settings {params.settings:q} "
        "--root {ROOT:q} --device {DEVICE} "
        "--gpu-share {resources.gpu_share} {DEVICES} {SWITCHES} {MIRROR} {PROCESSES} > {log:q} 2>&1"
