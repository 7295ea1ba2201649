# Downstream tasks: those made from held-out documents, those of lm-evaluation-harness with their
# data, and how checkpoints do on them.


MADE = Paths.at(plan.site.places("made"))
made_job = lambda w: plan.tasks.made(w.made, w.corpus)


rule make_task:
    input:
        lambda w: needs(made_job(w)),
    output:
        update(MADE.published),
    log:
        MADE.log,
    conda:
        "../../envs/main.yaml"
    resources:
        **asks(made_job),
    params:
        job=lambda w: handover.file(made_job(w)),
    shell:
        RUN


FETCHED = Paths.at(plan.site.places("fetched"))
fetched_job = lambda w: plan.tasks.fetched(w.fetched)


rule fetch_task:
    input:
        lambda w: needs(fetched_job(w)),
    output:
        update(FETCHED.published),
    log:
        FETCHED.log,
    conda:
        "../../envs/main.yaml"
    resources:
        **asks(fetched_job),
    params:
        job=lambda w: handover.file(fetched_job(w)),
    shell:
        RUN


ACCURACY = Paths.at(plan.site.places("accuracy"))
accuracy_job = lambda w: plan.tasks.accuracy(
    w.trajectory, w.method, w.task, w.shard, int(w.seed)
)


rule accuracy:
    input:
        lambda w: needs(accuracy_job(w)),
    output:
        update(ACCURACY.published),
    log:
        ACCURACY.log,
    conda:
        "../../envs/main.yaml"
    threads: plan.resources.threads("accuracy")
    resources:
        **asks(accuracy_job),
        devices=plan.resources.ask("accuracy").get("gpu", 1),
    params:
        job=lambda w: handover.file(accuracy_job(w)),
        spread=lambda w: f"--device-map {plan.resources.device_map(w.trajectory)}",
    shell:
        RUN_SPREAD
