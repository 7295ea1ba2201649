# Figures, and a target of its own for each: snakemake fig04


FIGURE = Paths.at(plan.site.pictures, "{figure}")
figure_job = lambda w: plan.figures.figure(w.figure)


def shown_figure(suffix, form):
    """A file of a figure, and how Snakemake's own report shows it."""
    return report(
        update(f"{plan.site.pictures}/{{figure}}.{suffix}"),
        caption="../report/figure.rst",
        category=lambda w: group(plan, w.figure),
        labels=lambda w: {
            "figure": w.figure,
            "title": title(plan, w.figure),
            "form": form,
        },
    )


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
