# Trajectories: corpora, the runs trained on them, public models, and averages of checkpoints.


use rule job as corpus with:
    input:
        spec=spec("corpus"),
        text=inputs("corpus", "corpus", "functions", "checkpoint"),
    output:
        manifest=manifest("corpus"),
    threads: CORES or plan.resources.threads("corpus")


use rule job as functions with:
    input:
        spec=spec("functions"),
        corpus=inputs("functions", "corpus"),
    output:
        manifest=manifest("functions"),


use rule job_on_device as train with:
    input:
        spec=spec("train"),
        corpus=inputs("train", "corpus"),
        before=inputs("train", "trunk", "after"),
    output:
        manifest=manifest("train"),


use rule job as fetch with:
    input:
        spec=spec("fetch"),
    output:
        manifest=manifest("fetch"),


use rule job as average with:
    input:
        spec=spec("average"),
        checkpoints=inputs("average"),
    output:
        manifest=manifest("average"),
