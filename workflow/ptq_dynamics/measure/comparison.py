"""GPTQ backends side by side: the same checkpoints, the same settings."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.joining import join
from ptq_dynamics.measure.measurements import TEXT, read_csv
from ptq_dynamics.measure.names import (
    CHECKPOINT,
    LAYERS,
    LOSS,
    METRIC,
    OUTPUT_RELATIVE,
    QUANTIZATION_ERROR,
    QUANTIZER,
    STEP,
    VALUE,
)
from ptq_dynamics.measure.settings import ComparisonSettings
from ptq_dynamics.models import packed
from ptq_dynamics.train.trajectory import Trajectory

CODES, MODELS, TABLE = "codes.csv", "models.csv", "table.md"
DIFFERENCES = """\
- one step: a weight lay between two grid points up to rounding (the libraries sum the Hessian in
  different orders, and GPTQModel keeps scales in float16). GPTQ's error feedback carries the
  difference on along its row, and into the layers behind.
- more steps: as one step, where the feedback along a row added up; codes.csv says in how many
  rows of the layer, and to how much.
- moved columns: where groups follow the activation order, columns whose activations are equal up
  to rounding can change places. At the edge of a group both groups' scales then change, and with
  them the codes of many columns.
"""


def run(context: Context[ComparisonSettings]) -> Mapping[str, Any]:
    """Write, per layer and pair of backends, the share of equal integer codes; per model, losses
    and the relative output error of its layers; and a table of their means."""
    groups = context.settings.groups
    codes = pd.DataFrame([row for group in groups for row in _codes(context, group)])
    models = pd.concat([_models(context, group) for group in groups], ignore_index=True)
    codes.to_csv(context.out / CODES, index=False)
    models.to_csv(context.out / MODELS, index=False)
    means = models.groupby(QUANTIZER, sort=False)[[LOSS, OUTPUT_RELATIVE]].mean()
    text = (
        f"GPTQ backends on {models.step.nunique()} checkpoints of {context.name}\n\n"
        f"```\n{means.to_string()}\n```\n\nShare of equal integer codes over layers, and how many "
        f"layers differ how:\n\n```\n{_agreement(codes).to_string()}\n```\n\n{DIFFERENCES}"
    )
    (context.out / TABLE).write_text(text)
    context.progress.say("\n" + text)
    return {"rows": len(codes)}


def _agreement(codes: pd.DataFrame) -> pd.DataFrame:
    pairs = codes.groupby(["first", "second"], sort=False)
    shares = pairs["equal_codes"].agg(["mean", "min"])
    kinds = pd.CategoricalDtype(["none", "one step", "more steps", "moved columns"])
    counts = codes.astype({"difference": kinds}).groupby(["first", "second"], sort=False)
    return shares.join(counts["difference"].value_counts().unstack("difference")[kinds.categories])


def _codes(context: Context[ComparisonSettings], group: Sequence[str]) -> Iterator[dict[str, Any]]:
    for first, second in combinations(group, 2):
        left, right = (Trajectory(context.inputs[f"quantized {name}"]) for name in (first, second))
        for checkpoint in left.checkpoints:
            ours, theirs = (
                packed.grids(quantized.folder(checkpoint)) for quantized in (left, right)
            )
            for layer in sorted(ours):
                mine, other = ours[layer], theirs[layer]
                difference = (mine.steps() - other.steps()).abs()
                moved = mine.groups() != other.groups()
                yield {
                    CHECKPOINT: checkpoint.id,
                    STEP: checkpoint.step,
                    "layer": layer,
                    "first": first,
                    "second": second,
                    "equal_codes": float((difference == 0).float().mean()),
                    "largest_difference": int(difference.max()),
                    "differing_rows": int((difference > 0).any(1).sum()),
                    "moved_columns": int(moved.sum()),
                    "difference": _kind(int(difference.max()), bool(moved.any())),
                }


def _kind(largest: int, moved: bool) -> str:
    if moved:
        return "moved columns"
    return {0: "none", 1: "one step"}.get(largest, "more steps")


def _models(context: Context[ComparisonSettings], group: Sequence[str]) -> pd.DataFrame:
    table, parts = join(context.settings.series, context.inputs), []
    for quantizer in group:
        measured = table[table.quantizer == quantizer]
        wide = measured.pivot(index=CHECKPOINT, columns=METRIC, values=VALUE)
        layers = read_csv(context.input(f"quantized {quantizer}").file(LAYERS), TEXT)
        means = layers.groupby(CHECKPOINT)[[STEP, OUTPUT_RELATIVE]].mean()
        joined = means.join(wide[[LOSS, QUANTIZATION_ERROR]], how="inner")
        parts.append(joined.reset_index().assign(quantizer=quantizer))
    return pd.concat(parts, ignore_index=True)
