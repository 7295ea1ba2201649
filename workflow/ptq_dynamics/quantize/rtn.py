"""Round-to-nearest: the data-free baseline, on the same symmetric grid as GPTQ."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ptq_dynamics import models
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.packed import Grid
from ptq_dynamics.quantize.layers import check_groups, round_to_nearest
from ptq_dynamics.quantize.method import Calibration, Quantized, run_method


def run(context: Context) -> Mapping[str, Any]:
    """Stage: quantize a trajectory's checkpoints by rounding."""
    return run_method(context, quantize)


def quantize(
    folders: Sequence[Path], _calibration: Calibration, settings: Mapping[str, Any]
) -> Iterator[Quantized]:
    """Settings: bits, group_size."""
    for folder in folders:
        model = models.load(folder)
        check_groups(model, settings["group_size"])
        grids = {}
        for name, layer in models.linear_layers(model).items():
            codes, scales = round_to_nearest(
                layer.weight.detach(), settings["bits"], settings["group_size"]
            )
            grids[name] = Grid(settings["bits"], codes, scales)
        yield Quantized.on(grids)
