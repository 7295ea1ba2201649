# Trajectories: corpora, the runs trained on them, public models, and averages of checkpoints.


rule corpus:
    input:
        spec=spec("corpus"),
        text=inputs("corpus", "corpus", "functions", "checkpoint"),
    output:
        manifest=manifest("corpus"),
    threads: CORES or plan.resources.threads("corpus")
    resources:
        **asked("corpus"),
    shell:
        RUN


rule functions:
    input:
        spec=spec("functions"),
        corpus=inputs("functions", "corpus"),
    output:
        manifest=manifest("functions"),
    resources:
        **asked("functions"),
    shell:
        RUN


rule train:
    input:
        spec=spec("train"),
        corpus=inputs("train", "corpus"),
        before=inputs("train", "trunk", "after"),
    output:
        manifest=manifest("train"),
    threads: plan.resources.threads("train")
    resources:
        **asked("train"),
    shell:
        RUN_ON_DEVICE


rule fetch:
    input:
        spec=spec("fetch"),
    output:
        manifest=manifest("fetch"),
    resources:
        **asked("fetch"),
    shell:
        RUN


rule average:
    input:
        spec=spec("average"),
        checkpoints=inputs("average"),
    output:
        manifest=manifest("average"),
    threads: plan.resources.threads("average")
    resources:
        **asked("average"),
    shell:
        RUN
