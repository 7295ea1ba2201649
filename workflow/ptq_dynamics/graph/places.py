"""Where results lie below those of a scale, by the kind of job: for planners, and with wildcards
for the rules."""

PLACES = {
    "corpus": "corpus/{corpus}",
    "functions": "functions/{corpus}",
    "train": "train/{run}/seed-{seed}",
    "fetch": "fetch/{public}/{shard}",
    "average": "average/{average}/seed-{seed}/{shard}",
    "measure": "measure/{trajectory}/seed-{seed}/{method}/{shard}",
    "make_task": "tasks/{made}/{corpus}",
    "fetch_task": "tasks/{fetched}",
    "curvature": "curvature/{trajectory}/seed-{seed}/{probe}/{shard}",
    "landscape": "landscape/{trajectory}/seed-{seed}/{quantizer}/back-{steps}",
    "components": "components/{figure}",
    "comparison": "backends",
    "tables": "tables",
}
