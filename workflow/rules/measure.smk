# Losses, layer errors and answers of checkpoints, quantized or not, and the table of it all.


MEASURE = Paths.at(plan.site.places("measure"))
measure_job = lambda w: plan.measuring.measure(
    w.trajectory, w.method, w.shard, int(w.seed)
)


rule measure:
    input:
        lambda w: needs(measure_job(w)),
    output:
        update(MEASURE.published),
    log:
        MEASURE.log,
    conda:
        "../../envs/main.yaml"
    threads: plan.resources.threads("measure")
    resources:
        **asks(measure_job),
        devices=plan.resources.devices("measure"),
    params:
        job=lambda w: handover.file(measure_job(w)),
        spread=lambda w: plan.resources.spreading(measure_job(w)),
    shell:
        RUN_SPREAD


COLLECT = plan.figures.collect()


rule collect:
    input:
        lambda w: needs(COLLECT),
    output:
        update(COLLECT.outputs),
        update(COLLECT.paths.published),
    log:
        COLLECT.paths.log,
    conda:
        "../../envs/main.yaml"
    resources:
        **asks(lambda w: COLLECT),
    params:
        job=lambda w: handover.file(COLLECT),
    shell:
        RUN
