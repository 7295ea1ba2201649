# Downstream tasks: those made from held-out documents, those of lm-evaluation-harness with their
# data.


MADE = Paths.at(plan.site.places("made"))
made_job = lambda w: plan.measuring.made(w.made, w.corpus)


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
fetched_job = lambda w: plan.measuring.fetched(w.fetched)


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
