"""Principal components of the weights along trajectories."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch

from ptq_dynamics import models
from ptq_dynamics.geometry.plane import flatten, pca
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.trajectories import trajectory

SCORES = "scores.csv"


def run(context: Context) -> Mapping[str, Any]:
    """Write the scores of every checkpoint; facts: the explained share of the variance."""
    rows, vectors = [], []
    for name, steps in context.settings["steps"]:
        source = context.input(name)
        for checkpoint in trajectory.at_steps(source, steps):
            model = models.load(source.subfolder(checkpoint.folder))
            vectors.append(flatten(dict(model.named_parameters())).detach().cpu())
            rows.append({"trajectory": name, "step": checkpoint.step, "tokens": checkpoint.tokens})
        context.progress.maybe(f"{len(rows)} checkpoints read")
    scores, explained = pca(torch.stack(vectors), context.settings["components"])
    table = pd.DataFrame(rows)
    for number in range(scores.shape[1]):
        table[f"pc{number + 1}"] = scores[:, number].tolist()
    table.to_csv(context.out / SCORES, index=False)
    return {"explained": explained.tolist()}
