"""Compare GPTQ backends on the same checkpoints with the same settings."""

from collections.abc import Iterator, Mapping
from itertools import chain, combinations

import pandas as pd

from ptq_dynamics.base import needs
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure import names
from ptq_dynamics.measure.measurements import TEXT, join, read_table
from ptq_dynamics.measure.series import ComparisonSettings
from ptq_dynamics.models import packed
from ptq_dynamics.trajectories.trajectory import Trajectory

CODES, MODELS, TABLE = "codes.csv", "models.csv", "table.md"
PAIR, KINDS = ["first", "second"], ["none", "one step", "more steps", "moved columns"]
DIFFERENCES = """\
- one step: a weight lay midway between two grid points, up to rounding. GPTQ's error feedback
  passes the difference along its row, where it may grow, and to later layers.
- moved columns: columns with equal activations, up to rounding, changed places in the activation
  order. At the edge of a group, this changes two scales and the codes of many columns.
"""


def run(context: Context[ComparisonSettings]) -> Mapping[str, object]:
    """Write the agreement of codes by layer, losses by model, and a table of both."""
    codes, models = pd.DataFrame(_codes(context)), _models(context)
    codes.to_csv(context.out / CODES, index=False)
    models.to_csv(context.out / MODELS, index=False)
    losses = models.pivot(index=names.CHECKPOINT_ID, columns=names.QUANTIZER, values=names.LOSS)
    pairs = codes.astype({"difference": pd.CategoricalDtype(KINDS)}).groupby(PAIR, sort=False)
    counts = pairs["difference"].value_counts().unstack("difference")[KINDS]
    agreement = pairs["equal_codes"].agg(["mean", "min"]).join(counts)
    gaps = [(losses[first] - losses[second]).abs().max() for first, second in agreement.index]
    agreement.insert(0, "loss", gaps)
    columns = {s.quantizer: names.BACKENDS.get(s.method) for s in context.settings.series}
    means = [
        pd.Series({columns[name]: losses[name].mean() for name in group}, name=group[0])
        for group in context.settings.groups
    ]
    text = (
        f"GPTQ backends on {len(losses)} checkpoints of {context.name}: with equal settings, at "
        f"least {100 * agreement['mean'].min():.6g} % of integer codes agree, in the mean over "
        f"layers; losses differ by up to {max(gaps):.2g} nats.\n\nMean losses, by quantizers that "
        f"name the settings:\n\n```\n{pd.DataFrame(means).to_string(na_rep='-')}\n```\n\n"
        "Largest difference of losses, share of equal integer codes over layers, and how many "
        f"layers differ how:\n\n```\n{agreement.to_string()}\n```\n\n{DIFFERENCES}"
    )
    (context.out / TABLE).write_text(text)
    context.progress.say("\n" + text)
    return {"rows": len(codes)}


def _codes(context: Context[ComparisonSettings]) -> Iterator[dict[str, object]]:
    for pair in chain.from_iterable(combinations(group, 2) for group in context.settings.groups):
        sources = [Trajectory(context.inputs[needs.quantized(name)]) for name in pair]
        for checkpoint in sources[0].checkpoints:
            ours, theirs = (packed.grids(source.folder(checkpoint)) for source in sources)
            for layer, mine in sorted(ours.items()):
                difference = (mine.steps() - theirs[layer].steps()).abs()
                moved = int((mine.groups() != theirs[layer].groups()).sum())
                largest = int(difference.max())
                yield {
                    names.CHECKPOINT_ID: checkpoint.id,
                    names.STEP: checkpoint.step,
                    "layer": layer,
                    **dict(zip(PAIR, pair, strict=True)),
                    "equal_codes": float((difference == 0).float().mean()),
                    "largest_difference": largest,
                    "differing_rows": int((difference > 0).any(1).sum()),
                    "moved_columns": moved,
                    "difference": KINDS[3 if moved else min(largest, 2)],
                }


def _models(context: Context[ComparisonSettings]) -> pd.DataFrame:
    table, parts = join(context.settings.series, context.inputs), []
    for quantizer in chain.from_iterable(context.settings.groups):
        measured = table[table.quantizer == quantizer]
        wide = measured.pivot(index=names.CHECKPOINT_ID, columns=names.METRIC, values=names.VALUE)
        layers = read_table(context.input(needs.quantized(quantizer)).file(names.LAYERS), TEXT)
        means = layers.groupby(names.CHECKPOINT_ID)[[names.STEP, names.OUTPUT_RELATIVE]].mean()
        joined = means.join(wide[[names.LOSS, names.QUANTIZATION_ERROR]], how="inner")
        parts.append(joined.reset_index().assign(quantizer=quantizer))
    return pd.concat(parts, ignore_index=True)
