# Tools with environments of their own, and how they compare.


ENVIRONMENT = Paths.at("envs/{tool}")
environment_job = lambda w: plan.measuring.environment(w.tool)


rule environment:
    input:
        lambda w: needs(environment_job(w)),
    output:
        update(ENVIRONMENT.published),
    log:
        ENVIRONMENT.log,
    conda:
        "../../envs/main.yaml"
    resources:
        **asks(environment_job),
    params:
        job=lambda w: handover.file(environment_job(w)),
    shell:
        RUN


COMPARISON = plan.measuring.comparison()


rule comparison:
    input:
        lambda w: needs(COMPARISON),
    output:
        update(COMPARISON.paths.published),
    log:
        COMPARISON.paths.log,
    conda:
        "../../envs/main.yaml"
    resources:
        **asks(lambda w: COMPARISON),
    params:
        job=lambda w: handover.file(COMPARISON),
    shell:
        RUN


rule backends:
    input:
        COMPARISON.outputs,
    localrule: True
