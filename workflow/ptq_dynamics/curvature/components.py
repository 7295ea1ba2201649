"""Principal components of the weights along trajectories."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ptq_dynamics.curvature.columns import blocks
from ptq_dynamics.curvature.plane import pca
from ptq_dynamics.curvature.settings import SCORES, ComponentsSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import SEED, STEP, TOKENS, TRAJECTORY
from ptq_dynamics.train.trajectory import Trajectory

# Columns read at once, which decides the order of the sums: of 267 checkpoints they take 4.5 GB.
BLOCK = 1 << 22


def run(context: Context[ComponentsSettings]) -> Mapping[str, Any]:
    """Write the scores of every checkpoint; facts: the explained share of the variance."""
    rows, folders = [], []
    for path in context.settings.paths:
        source = Trajectory(context.inputs[path.label])
        for checkpoint in source.at(path.checkpoints):
            folders.append(source.folder(checkpoint))
            whose = {TRAJECTORY: path.trajectory, SEED: path.seed}
            rows.append({**whose, STEP: checkpoint.step, TOKENS: checkpoint.tokens})
        context.progress.maybe(f"{len(rows)} checkpoints found")
    scores, explained = pca(blocks(folders, BLOCK), context.settings.components)
    table = pd.DataFrame(rows)
    for number in range(scores.shape[1]):
        table[f"pc{number + 1}"] = scores[:, number].tolist()
    table.to_csv(context.out / SCORES, index=False)
    return {"explained": explained.tolist()}
