# The loss around checkpoints: curvature, landscapes, and where trajectories lie.


rule curvature:
    input:
        spec=spec("curvature"),
        corpus=inputs("curvature", "corpus"),
        checkpoints=inputs("curvature", "trajectory"),
    output:
        manifest=manifest("curvature"),
    threads: plan.resources.threads("curvature")
    resources:
        **asked("curvature"),
    shell:
        RUN_ON_DEVICE


rule landscape:
    input:
        spec=spec("landscape"),
        corpus=inputs("landscape", "corpus"),
        checkpoints=inputs("landscape"),
    output:
        manifest=manifest("landscape"),
    threads: plan.resources.threads("landscape")
    resources:
        **asked("landscape"),
    shell:
        RUN_ON_DEVICE


rule components:
    input:
        spec=spec("components"),
        checkpoints=inputs("components"),
    output:
        manifest=manifest("components"),
    threads: plan.resources.threads("components")
    resources:
        **asked("components"),
    shell:
        RUN
