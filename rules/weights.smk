rule weights:  # of networks that torchvision publishes
    output:
        WEIGHTS_DIGESTS,
    log:
        f"{LOGS}/weights/{{model}}.{{weights}}.log",
    benchmark:
        f"{LOGS}/benchmarks/weights/{{model}}.{{weights}}.tsv"
    threads: 1
    params:
        settings=stage("weights"),
        code=code("weights"),
    message:
        "fetch the weights {wildcards.weights} of {wildcards.model}"
    shell:
        "diagvib weights {wildcards.model} {wildcards.weights} --settings {params.settings:q} --root {ROOT:q} {MIRROR} "
        "> {log:q} 2>&1"
