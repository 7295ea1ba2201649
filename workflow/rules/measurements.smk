# What is measured of checkpoints: losses, errors, accuracies, curvature.


rule environment:
    input:
        **inputs_of("environment"),
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


# This rule quantizes each checkpoint (but for full precision), and measures it.
rule measure:
    input:
        **inputs_of("measure", "corpus", "trajectory", "task", "environment"),
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
        **inputs_of("curvature", "corpus", "trajectory"),
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
        **inputs_of("landscape", "corpus", "trajectory", "environment"),
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
        **inputs_of("components", "others"),
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
        **inputs_of("comparison", "quantized", "measure"),
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


# This rule writes measurements.csv.
rule collect:
    input:
        **inputs_of("collect", "measure", "beside", "others"),
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
