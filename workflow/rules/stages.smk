# A row for each stage: its inputs by their labels ([]: all). A job also reads its specification, and
# writes a manifest.
STAGES = {
    # Trajectories: corpora, training runs, public models, averages of checkpoints.
    "corpus": {"text": ["corpus", "functions", "checkpoint"]},
    "functions": {"corpus": ["corpus"]},
    "train": {"corpus": ["corpus"], "before": ["trunk", "after", "weights"]},
    "fetch": {},
    "average": {"checkpoints": []},
    # Losses, layer errors and answers, and the table of measurements.
    "measure": {
        "corpus": ["corpus"],
        "checkpoints": ["trajectory"],
        "tasks": ["task", "environment"],
    },
    "make_task": {"functions": ["functions"], "corpus": ["corpus"]},
    "fetch_task": {},
    "collect": {"measurements": []},
    # The loss around checkpoints, and principal components of trajectories.
    "curvature": {"corpus": ["corpus"], "checkpoints": ["trajectory"]},
    "landscape": {"checkpoints": []},
    "components": {"checkpoints": []},
    # Other quantization tools, and their comparison.
    "environment": {},
    "comparison": {"measurements": []},
    # Figures, claims and tables, the paper and the page.
    "figure": {"runs_and_measurements": []},
    "judge": {"measurements": []},
    "tabulate": {"measurements": []},
    "typeset": {"figures": []},
    "report": {"figures": []},
}
# Stages that compute on a device, if any.
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


# Targets: each figure, and other results by their names.
NAMED = {**dict.fromkeys(plan.site.config.figures, "figure"), **BY_NAME}

for name, kind in NAMED.items():

    rule:
        name:
            name
        input:
            manifest(kind).format(figure=name),
        localrule: True
