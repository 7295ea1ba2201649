# Figures, each with a target of its own (snakemake fig04), claims, tables, the paper and the page.


rule figure:
    input:
        spec=spec("figure"),
        runs_and_measurements=inputs("figure"),
    output:
        manifest=manifest("figure"),
    priority: 20
    resources:
        **asked("figure"),
    shell:
        RUN


# What people ask for by name: each figure, and what other rules make under names of stages.
BY_NAME = dict.fromkeys(plan.site.config.figures, "figure")
BY_NAME |= {"claims": "judge", "tables": "tabulate", "paper": "typeset"}

for name, kind in BY_NAME.items():

    rule:
        name:
            name
        input:
            manifest(kind).format(figure=name),
        localrule: True


rule judge:
    input:
        spec=spec("judge"),
        measurements=inputs("judge"),
    output:
        manifest=manifest("judge"),
    resources:
        **asked("judge"),
    shell:
        RUN


rule tabulate:
    input:
        spec=spec("tabulate"),
        measurements=inputs("tabulate"),
        claims=inputs("tabulate", "claims"),
    output:
        manifest=manifest("tabulate"),
    resources:
        **asked("tabulate"),
    shell:
        RUN


rule typeset:
    input:
        spec=spec("typeset"),
        figures=inputs("typeset"),
    output:
        manifest=manifest("typeset"),
    resources:
        **asked("typeset"),
    shell:
        RUN


rule report:
    input:
        spec=spec("report"),
        figures=inputs("report"),
    output:
        manifest=manifest("report"),
    resources:
        **asked("report"),
    shell:
        RUN
