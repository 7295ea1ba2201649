# Verdicts on what the paper says, and tables of numbers, over what the figures measure.


claims_job = lambda w: planned(plan.claims.judge)
tables_job = lambda w: planned(plan.tables.write)


rule judge:
    input:
        lambda w: needs(claims_job(w)),
    output:
        update(plan.claims.files),
        update(plan.claims.paths.published),
    log:
        plan.claims.paths.log,
    conda:
        "../../envs/main.yaml"
    params:
        job=lambda w: handover.file(claims_job(w)),
    shell:
        RUN


rule tabulate:
    input:
        lambda w: needs(tables_job(w)),
    output:
        update(plan.tables.files),
        update(plan.tables.paths.published),
    log:
        plan.tables.paths.log,
    conda:
        "../../envs/main.yaml"
    params:
        job=lambda w: handover.file(tables_job(w)),
    shell:
        RUN


rule claims:
    input:
        plan.claims.files,
    localrule: True


rule tables:
    input:
        plan.tables.files,
    localrule: True
