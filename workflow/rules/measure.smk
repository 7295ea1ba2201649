# Losses, layer errors and answers of full-precision and quantized checkpoints.


rule quantize:
    input:
        spec=spec("quantize"),
        corpus=inputs("quantize"),
    output:
        manifest("quantize"),
    resources:
        devices=1,
    shell:
        RUN_ON_DEVICE


rule evaluate:
    input:
        spec=spec("evaluate"),
        corpus=inputs("evaluate"),
    output:
        manifest("evaluate"),
    resources:
        devices=1,
    shell:
        RUN_ON_DEVICE


rule accuracy:
    input:
        spec=spec("accuracy"),
        corpus=inputs("accuracy"),
    output:
        manifest("accuracy"),
    resources:
        devices=1,
    shell:
        RUN_ON_DEVICE


rule make_task:
    input:
        spec=spec("make_task"),
        text=inputs("make_task"),
    output:
        manifest("make_task"),
    resources:
        **asked("make_task"),
    shell:
        RUN


rule fetch_task:
    input:
        spec=spec("fetch_task"),
    output:
        manifest("fetch_task"),
    resources:
        **asked("fetch_task"),
    shell:
        RUN


rule collect:
    input:
        spec=spec("collect"),
        measurements=inputs("collect"),
    output:
        manifest("collect"),
    resources:
        **asked("collect"),
    shell:
        RUN
