# Tools with environments of their own, and how they compare.


rule environment:
    input:
        spec=spec("environment"),
    output:
        manifest=manifest("environment"),
    resources:
        **asked("environment"),
    shell:
        RUN


rule comparison:
    input:
        spec=spec("comparison"),
        measurements=inputs("comparison"),
    output:
        manifest=manifest("comparison"),
    resources:
        **asked("comparison"),
    shell:
        RUN


rule backends:
    input:
        manifest("comparison"),
    localrule: True
