# Figures, each with a target of its own (snakemake fig04), claims, tables, the paper and the page.


use rule job as figure with:
    input:
        spec=spec("figure"),
        runs_and_measurements=inputs("figure"),
    output:
        manifest=manifest("figure"),
    priority: 20


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


use rule job as judge with:
    input:
        spec=spec("judge"),
        measurements=inputs("judge"),
    output:
        manifest=manifest("judge"),


use rule job as tabulate with:
    input:
        spec=spec("tabulate"),
        measurements=inputs("tabulate"),
        claims=inputs("tabulate", "claims"),
    output:
        manifest=manifest("tabulate"),


use rule job as typeset with:
    input:
        spec=spec("typeset"),
        figures=inputs("typeset"),
    output:
        manifest=manifest("typeset"),


use rule job as report with:
    input:
        spec=spec("report"),
        figures=inputs("report"),
    output:
        manifest=manifest("report"),
