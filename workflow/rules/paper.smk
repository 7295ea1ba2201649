# The paper: its text with all figures, claims and tables of the scale.


paper_job = lambda w: planned(lambda: plan.typeset(CONFIG))


rule typeset:
    input:
        lambda w: needs(paper_job(w)),
    output:
        update(plan.paper.files),
        update(plan.paper.paths.published),
    log:
        plan.paper.paths.log,
    conda:
        "../../envs/main.yaml"
    params:
        job=lambda w: handover.file(paper_job(w)),
    shell:
        RUN


rule paper:
    input:
        plan.paper.files,
    localrule: True
