# A row a stage: what its jobs read, by the labels of their inputs ([]: all labels). Each job also
# reads its specification, and makes a manifest of its result.
STAGES = {
    # Trajectories: corpora, the runs trained on them, public models, averages of checkpoints.
    "corpus": {"text": ["corpus", "functions", "checkpoint"]},
    "functions": {"corpus": ["corpus"]},
    "train": {"corpus": ["corpus"], "before": ["trunk", "after"]},
    "fetch": {},
    "average": {"checkpoints": []},
    # Losses, layer errors and answers of checkpoints, quantized or not, and the table of them.
    "measure": {
        "corpus": ["corpus"],
        "checkpoints": ["trajectory"],
        "tasks": ["task", "environment"],
    },
    "make_task": {"functions": ["functions"], "corpus": ["corpus"]},
    "fetch_task": {},
    "collect": {"measurements": []},
    # The loss around checkpoints, and where trajectories lie.
    "curvature": {"corpus": ["corpus"], "checkpoints": ["trajectory"]},
    "landscape": {"checkpoints": []},
    "components": {"checkpoints": []},
    # Tools with environments of their own, and how they compare.
    "environment": {},
    "comparison": {"measurements": []},
    # Pictures, claims and tables, the paper and the page.
    "figure": {"runs_and_measurements": []},
    "judge": {"measurements": []},
    "tabulate": {"measurements": []},
    "typeset": {"figures": []},
    "report": {"figures": []},
}
# Stages whose jobs compute on a device, where there is one.
ON_DEVICE = ("train", "measure", "curvature", "landscape")

for kind, groups in STAGES.items():

    rule:
        name:
            kind
        input:
            **{label: inputs(kind, *words) for label, words in groups.items()},
            spec=spec(kind),
        output:
            manifest=manifest(kind),
        priority: 20 if kind == "figure" else 0
        threads: plan.resources.threads(kind)
        resources:
            **asked(kind),
        shell:
            RUN


# What people ask for by name: each figure, and what stages make under names of their own.
NAMED = {**dict.fromkeys(plan.site.config.figures, "figure"), **BY_NAME}

for name, kind in NAMED.items():

    rule:
        name:
            name
        input:
            manifest(kind).format(figure=name),
        localrule: True
