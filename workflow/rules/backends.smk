# Tools with environments of their own, and how they compare.


use rule job as environment with:
    input:
        spec=spec("environment"),
    output:
        manifest=manifest("environment"),


use rule job as comparison with:
    input:
        spec=spec("comparison"),
        measurements=inputs("comparison"),
    output:
        manifest=manifest("comparison"),


rule backends:
    input:
        manifest("comparison"),
    localrule: True
