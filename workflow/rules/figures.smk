# Figures, and a target of its own for each: snakemake fig04


FIGURE = Paths.at(plan.site.pictures, "{figure}")
figure_job = lambda w: plan.figures.figure(w.figure)


rule figure:
    input:
        lambda w: needs(figure_job(w)),
    output:
        update(
            f"{plan.site.pictures}/{{figure}}.{kind}" for kind in ("pdf", "png", "csv")
        ),
        update(FIGURE.published),
    log:
        FIGURE.log,
    priority: 20
    conda:
        "../../envs/main.yaml"
    resources:
        **asks(figure_job),
    params:
        job=lambda w: handover.file(figure_job(w)),
    shell:
        RUN


for name in plan.site.config.figures:

    rule:
        name:
            name
        input:
            plan.figures.figure(name).outputs,
        localrule: True
