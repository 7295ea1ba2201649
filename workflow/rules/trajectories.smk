# Ordered checkpoints: runs, public models and own checkpoints, averages.


rule train:
    input:
        corpus=needs("train", "corpus"),
        before=needs("train", "trunk", "weights", "after"),
        spec=spec("train"),
    output:
        manifest="<results>/train/{run}/seed-{seed}/manifest.json",
    log:
        "<results>/train/{run}/seed-{seed}/.log",
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        **requests("train", devices=1),
    shell:
        RUN


rule fetch:
    input:
        spec=spec("fetch"),
    output:
        manifest="<results>/fetch/{public}/{shard}/manifest.json",
    log:
        "<results>/fetch/{public}/{shard}/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("fetch"),
    shell:
        RUN


rule average:
    input:
        trajectories=needs("average", "*"),
        corpus=needs("average", "corpus"),
        spec=spec("average"),
    output:
        manifest="<results>/average/{average}/seed-{seed}/{shard}/manifest.json",
    log:
        "<results>/average/{average}/seed-{seed}/{shard}/.log",
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        **requests("average"),
    shell:
        RUN
