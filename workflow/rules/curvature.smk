# The loss around checkpoints: curvature, landscapes, and where trajectories lie.


use rule job_on_device as curvature with:
    input:
        spec=spec("curvature"),
        corpus=inputs("curvature", "corpus"),
        checkpoints=inputs("curvature", "trajectory"),
    output:
        manifest=manifest("curvature"),


use rule job_on_device as landscape with:
    input:
        spec=spec("landscape"),
        corpus=inputs("landscape", "corpus"),
        checkpoints=inputs("landscape"),
    output:
        manifest=manifest("landscape"),


use rule job as components with:
    input:
        spec=spec("components"),
        checkpoints=inputs("components"),
    output:
        manifest=manifest("components"),
