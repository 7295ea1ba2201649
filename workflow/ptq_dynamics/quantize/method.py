"""The part of a quantization job that is the same for every method.

A method takes checkpoint folders of one shape and yields, checkpoint by checkpoint, the dequantized
weights of the layers it quantized and the form in which they are saved. The job saves each as a
checkpoint folder, and the error of every layer.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
from torch import Tensor

from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.packed import Grid
from ptq_dynamics.quantize.layers import check_groups, gram_matrices, layer_errors
from ptq_dynamics.quantize.storage import Packed, Stored
from ptq_dynamics.trajectories import trajectory

LAYERS = "layers.csv"


@dataclass(frozen=True)
class Quantized:
    """One quantized checkpoint: the dequantized weights by layer, to be compared with the original
    ones, and the form in which it is saved."""

    weights: Mapping[str, Tensor]
    stored: Stored

    @classmethod
    def on(cls, grids: Mapping[str, Grid]) -> "Quantized":
        """The original model with the weights of these grids."""
        return cls({name: grid.weight() for name, grid in grids.items()}, Packed(grids))


@dataclass(frozen=True)
class Calibration:
    """The calibration set, int64 [sequences, context], and how many sequences go at once."""

    tokens: Tensor
    batch_size: int


# Checkpoint folders, calibration set, settings of the quantizer → one result a checkpoint.
Method = Callable[[Sequence[Path], Calibration, Mapping[str, Any]], Iterator[Quantized]]


def run_method(context: Context, method: Method) -> Mapping[str, Any]:
    """Quantize the job's checkpoints of its input trajectory."""
    config = context.settings
    source = context.input("trajectory")
    calibration = Calibration(
        tokens.blocks(
            context.input("corpus"),
            "calibration",
            config["context"],
            config["calibration_sequences"],
        ),
        config["calibration_batch"],
    )
    chosen = trajectory.at_steps(source, config["steps"])
    folders = [source.subfolder(checkpoint.folder) for checkpoint in chosen]
    rows = []
    results = _quietly(method(folders, calibration, config["settings"]), context.progress.log)
    for checkpoint, folder, quantized in zip(chosen, folders, results, strict=True):
        model = models.load(folder)
        if config["settings"].get("group_size"):
            check_groups(model, config["settings"]["group_size"])
        before = {name: layer.weight for name, layer in models.linear_layers(model).items()}
        grams = gram_matrices(model, calibration.tokens, calibration.batch_size)
        errors = layer_errors(before, quantized.weights, grams)
        rows += [{"step": checkpoint.step, "layer": n, **asdict(e)} for n, e in errors.items()]
        quantized.stored.save(folder, context.out / checkpoint.folder)
        context.progress.maybe(f"{len(rows) // len(errors)} of {len(chosen)} checkpoints")
    pd.DataFrame(rows).to_csv(context.out / LAYERS, index=False)
    facts = {k: v for k, v in source.facts.items() if k in ("parameters", "seed")}
    return trajectory.facts(
        chosen, quantized_layers=sorted({row["layer"] for row in rows}), **facts
    )


def _quietly(results: Iterator[Quantized], log: TextIO | None) -> Iterator[Quantized]:
    """The same results, with what the libraries print on stderr meanwhile (bars) in the log."""
    while True:
        with redirect_stderr(log or sys.stderr):
            found = next(results, None)
        if found is None:
            return
        yield found
