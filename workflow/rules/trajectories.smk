# Ordered checkpoints: runs, public models and own checkpoints, averages.


rule train:
    input:
        corpus=manifests_of("train", "corpus"),
        before=manifests_of("train", "trunk", "weights", "after"),
        spec=settled_spec("train"),
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
        JOB


rule fetch:
    input:
        spec=settled_spec("fetch"),
    output:
        manifest="<results>/fetch/{public}/{shard}/manifest.json",
    log:
        "<results>/fetch/{public}/{shard}/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("fetch"),
    shell:
        JOB


rule average:
    input:
        trajectories=manifests_of("average", "*"),
        corpus=manifests_of("average", "corpus"),
        spec=settled_spec("average"),
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
        JOB
