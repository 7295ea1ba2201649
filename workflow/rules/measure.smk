# Losses, layer errors and answers of checkpoints, quantized or not, and the table of it all.


use rule job_on_device as measure with:
    input:
        spec=spec("measure"),
        corpus=inputs("measure", "corpus"),
        checkpoints=inputs("measure", "trajectory"),
        tasks=inputs("measure", "task", "environment"),
    output:
        manifest=manifest("measure"),


use rule job as make_task with:
    input:
        spec=spec("make_task"),
        functions=inputs("make_task", "functions"),
        corpus=inputs("make_task", "corpus"),
    output:
        manifest=manifest("make_task"),


use rule job as fetch_task with:
    input:
        spec=spec("fetch_task"),
    output:
        manifest=manifest("fetch_task"),


use rule job as collect with:
    input:
        spec=spec("collect"),
        measurements=inputs("collect"),
    output:
        manifest=manifest("collect"),
