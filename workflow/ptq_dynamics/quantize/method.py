"""The part of a quantization job that is the same for every method.

A method takes a checkpoint folder and gives the dequantized weights of the layers it quantized and
the form in which they are saved. The job saves each as a checkpoint folder, and the error of every
layer.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from torch import Tensor, nn

from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import CHECKPOINT, LAYERS, STEP
from ptq_dynamics.models.packed import Grid
from ptq_dynamics.quantize.layers import model_errors
from ptq_dynamics.quantize.settings import QuantizeSettings
from ptq_dynamics.quantize.storage import Packed, Stored
from ptq_dynamics.train import trajectory
from ptq_dynamics.train.trajectory import Trajectory
from ptq_dynamics.train.weights import Weights

Q = TypeVar("Q")
L = TypeVar("L")


class OnDemand(Mapping[str, Tensor]):
    """Weights by layer, [out, in], read or dequantized when they are asked for: all at once would
    be a second model in memory."""

    def __init__(self, layers: Mapping[str, L], make: Callable[[L], Tensor]) -> None:
        self._layers, self._make = layers, make

    def __getitem__(self, name: str) -> Tensor:
        return self._make(self._layers[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)


def original(folder: Path, model: nn.Module) -> Mapping[str, Tensor]:
    """The weights of a checkpoint's quantized layers on `device()`, from its files: where a model
    is spread, not all that it has are in memory."""
    files = Weights(folder)
    names = {name: f"{name}.weight" for name in models.linear_layers(model)}
    return OnDemand(names, lambda name: files.tensors([name])[name].to(models.device()))


@dataclass(frozen=True)
class Quantized:
    """One quantized checkpoint: the dequantized weights by layer, to be compared with the original
    ones, and the form in which it is saved."""

    weights: Mapping[str, Tensor]
    stored: Stored

    @classmethod
    def on(cls, grids: Mapping[str, Grid]) -> "Quantized":
        """The original model with the weights of these grids."""
        return cls(OnDemand(grids, Grid.weight), Packed(grids))


@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibration set, int64 [sequences, context], shorter sequences filled up with
    `tokens.FILLING`, and how many sequences go at once."""

    tokens: Tensor
    batch_size: int

    @property
    def together(self) -> int:
        """How many sequences go at once: one, where they differ in length."""
        return 1 if bool((self.tokens == tokens.FILLING).any()) else self.batch_size

    def batches(self) -> list[Tensor]:
        """The sequences that go at once, int64 [batch, length], without filling."""
        return [
            batch[:, : int((batch != tokens.FILLING).sum(dim=1).max())]
            for batch in self.tokens.split(self.together)
        ]


# Checkpoint folder, calibration set, settings of the quantizer → its result.
Method = Callable[[Path, Calibration, Q], Quantized]


def run_method(context: Context[QuantizeSettings[Q]], method: Method[Q]) -> Mapping[str, Any]:
    """Quantize the job's checkpoints of its input trajectory."""
    settings, source = context.settings, Trajectory(context.inputs["trajectory"])
    calibration = calibration_of(context)
    chosen = source.at(settings.checkpoints)
    rows = []
    for checkpoint in chosen:
        folder = source.folder(checkpoint)
        # What the libraries print meanwhile (bars) goes to the log.
        offloading = models.offloading(context.scratch, context.device_map)
        with offloading, redirect_stderr(context.progress.log or sys.stderr):
            quantized = method(folder, calibration, settings.quantizer)
            quantized.stored.save(folder, context.out / checkpoint.id)
            # The model again: methods change theirs, and by now it is no longer in memory.
            model, batches = models.load(folder), calibration.batches()
            errors = model_errors(model, original(folder, model), quantized.weights, batches)
        whose = {CHECKPOINT: checkpoint.id, STEP: checkpoint.step}
        rows += [{**whose, "layer": name, **asdict(error)} for name, error in errors.items()]
        context.progress.maybe(f"{len(rows) // len(errors)} of {len(chosen)} checkpoints")
    pd.DataFrame(rows).to_csv(context.out / LAYERS, index=False)
    facts = {name: source.fact(name) for name in ("parameters", "seed")}
    return trajectory.facts(
        chosen, quantized_layers=sorted({row["layer"] for row in rows}), **facts
    )


def calibration_of(context: Context[QuantizeSettings[Any]]) -> Calibration:
    """The calibration set of a job."""
    settings, corpus = context.settings, context.input("corpus")
    context_length, count = settings.context, settings.calibration_sequences
    before = count * (settings.calibration_draw - 1)
    if settings.calibration_documents:
        table = tokens.documents(corpus, context_length, count, before)
    else:
        table = tokens.blocks(corpus, "calibration", context_length, before + count)[before:]
    return Calibration(table, settings.calibration_batch)
