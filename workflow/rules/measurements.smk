# What is measured of checkpoints: losses, errors, accuracies, curvature.


rule environment:
    input:
        spec=spec("environment"),
    output:
        manifest="envs/{tool}/manifest.json",
    log:
        "envs/{tool}/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("environment"),
    shell:
        RUN


rule measure:
    input:
        corpus=needs("measure", "corpus"),
        trajectory=needs("measure", "trajectory"),
        tasks=needs("measure", "task"),
        environment=needs("measure", "environment"),
        spec=spec("measure"),
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
        RUN


rule curvature:
    input:
        corpus=needs("curvature", "corpus"),
        trajectory=needs("curvature", "trajectory"),
        spec=spec("curvature"),
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
        RUN


rule landscape:
    input:
        corpus=needs("landscape", "corpus"),
        trajectory=needs("landscape", "trajectory"),
        environment=needs("landscape", "environment"),
        spec=spec("landscape"),
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
        RUN


rule components:
    input:
        trajectories=needs("components", "*"),
        spec=spec("components"),
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
        RUN


rule comparison:
    input:
        quantized=needs("comparison", "quantized"),
        measured=needs("comparison", "measure"),
        spec=spec("comparison"),
    output:
        manifest="<results>/backends/manifest.json",
    log:
        "<results>/backends/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("comparison"),
    shell:
        RUN


rule collect:
    input:
        measured=needs("collect", "measure", "beside"),
        curvature=needs("collect", "*"),
        spec=spec("collect"),
    output:
        manifest="<results>/measurements.manifest.json",
    log:
        "<results>/.measurements.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("collect"),
    shell:
        RUN
