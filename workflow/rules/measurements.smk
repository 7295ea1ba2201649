# What is measured of checkpoints: losses, errors, accuracies, curvature.


rule environment:
    input:
        spec=settled_spec("environment"),
    output:
        manifest="envs/{tool}/manifest.json",
    log:
        "envs/{tool}/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("environment"),
    shell:
        JOB


rule measure:
    input:
        corpus=manifests_of("measure", "corpus"),
        trajectory=manifests_of("measure", "trajectory"),
        tasks=manifests_of("measure", "task"),
        environment=manifests_of("measure", "environment"),
        spec=settled_spec("measure"),
    output:
        manifest="<results>/measure/{trajectory}/seed-{seed}/{quantizer}/{shard}/manifest.json",
    log:
        "<results>/measure/{trajectory}/seed-{seed}/{quantizer}/{shard}/.log",
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        **requests("measure", devices=1),
    shell:
        JOB


rule curvature:
    input:
        corpus=manifests_of("curvature", "corpus"),
        trajectory=manifests_of("curvature", "trajectory"),
        spec=settled_spec("curvature"),
    output:
        manifest="<results>/curvature/{trajectory}/seed-{seed}/{probe}/{shard}/manifest.json",
    log:
        "<results>/curvature/{trajectory}/seed-{seed}/{probe}/{shard}/.log",
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        **requests("curvature", devices=1),
    shell:
        JOB


rule landscape:
    input:
        corpus=manifests_of("landscape", "corpus"),
        trajectory=manifests_of("landscape", "trajectory"),
        environment=manifests_of("landscape", "environment"),
        spec=settled_spec("landscape"),
    output:
        manifest="<results>/landscape/{trajectory}/seed-{seed}/{quantizer}/back-{steps}/manifest.json",
    log:
        "<results>/landscape/{trajectory}/seed-{seed}/{quantizer}/back-{steps}/.log",
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        **requests("landscape", devices=1),
    shell:
        JOB


rule components:
    input:
        trajectories=manifests_of("components", "*"),
        spec=settled_spec("components"),
    output:
        manifest="<results>/components/{figure}/manifest.json",
    log:
        "<results>/components/{figure}/.log",
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        **requests("components"),
    shell:
        JOB


rule comparison:
    input:
        quantized=manifests_of("comparison", "quantized"),
        measured=manifests_of("comparison", "measure"),
        spec=settled_spec("comparison"),
    output:
        manifest="<results>/backends/manifest.json",
    log:
        "<results>/backends/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("comparison"),
    shell:
        JOB


rule collect:
    input:
        measured=manifests_of("collect", "measure", "beside"),
        curvature=manifests_of("collect", "*"),
        spec=settled_spec("collect"),
    output:
        manifest="<results>/measurements.manifest.json",
    log:
        "<results>/.measurements.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("collect"),
    shell:
        JOB
