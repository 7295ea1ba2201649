# A rule for each stage: a job reads its specification and its inputs, and writes a manifest.

# Stages that compute on a device, if any.
ON_DEVICE = ("train", "measure", "curvature", "landscape")

for kind in PLACES:

    rule:
        name:
            kind
        input:
            inputs=inputs(kind),
            spec=spec(kind),
        output:
            manifest=manifest(kind),
        priority: 20 if kind == "figure" else 0
        threads: plan.site.config.scale.threads if kind in COMPUTING else 1
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
