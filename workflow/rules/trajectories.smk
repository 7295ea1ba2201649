# Ordered checkpoints: runs, public models and own checkpoints, averages.


rule train:
    input:
        **inputs_of("train", "corpus", "trunk", "weights", "after"),
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
        **inputs_of("fetch"),
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
        **inputs_of("average", "corpus", "others"),
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
