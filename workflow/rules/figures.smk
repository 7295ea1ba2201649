# Figures, and a target of its own for each: snakemake fig04


FIGURE = Paths.at(plan.site.pictures, "{figure}")
figure_job = lambda w: plan.figures.figure(w.figure)


rule figure:
    input:
        lambda w: needs(figure_job(w)),
    output:
        update(f"{plan.site.pictures}/{{figure}}.pdf"),
        shown_figure("png", "picture"),
        shown_figure("csv", "table"),
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
        # For the caption in Snakemake's own report.
        caption=lambda w: caption(plan, w.figure),
    shell:
        RUN


for name in plan.site.config.figures:

    rule:
        name:
            name
        input:
            plan.figures.figure(name).outputs,
        localrule: True
