# Losses of full-precision and quantized checkpoints, and the table of all measurements.


EVALUATE = Paths.at(plan.site.places("evaluate"))
evaluate_job = lambda w: plan.losses.evaluate(
    w.trajectory, w.method, w.shard, int(w.seed)
)


rule evaluate:
    input:
        lambda w: needs(evaluate_job(w)),
    output:
        update(EVALUATE.published),
    log:
        EVALUATE.log,
    conda:
        "../../envs/main.yaml"
    threads: plan.resources.threads("evaluate")
    resources:
        **asks(evaluate_job),
        devices=plan.resources.ask("evaluate").get("gpu", 1),
    params:
        job=lambda w: handover.file(evaluate_job(w)),
        spread=lambda w: f"--device-map {plan.resources.device_map(w.trajectory)}",
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
