# Losses, layer errors and answers of checkpoints, quantized or not, and the table of it all.


rule measure:
    input:
        spec=spec("measure"),
        corpus=inputs("measure", "corpus"),
        checkpoints=inputs("measure", "trajectory"),
        tasks=inputs("measure", "task", "environment"),
    output:
        manifest=manifest("measure"),
    threads: plan.resources.threads("measure")
    resources:
        **asked("measure"),
    shell:
        RUN_ON_DEVICE


rule make_task:
    input:
        spec=spec("make_task"),
        functions=inputs("make_task", "functions"),
        corpus=inputs("make_task", "corpus"),
    output:
        manifest=manifest("make_task"),
    resources:
        **asked("make_task"),
    shell:
        RUN


rule fetch_task:
    input:
        spec=spec("fetch_task"),
    output:
        manifest=manifest("fetch_task"),
    resources:
        **asked("fetch_task"),
    shell:
        RUN


rule collect:
    input:
        spec=spec("collect"),
        measurements=inputs("collect"),
    output:
        manifest=manifest("collect"),
    resources:
        **asked("collect"),
    shell:
        RUN
