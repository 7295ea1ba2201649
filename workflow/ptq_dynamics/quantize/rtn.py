"""Round-to-nearest: the data-free baseline, on the same symmetric grid as GPTQ."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptq_dynamics import models
from ptq_dynamics.engine.context import Context
from ptq_dynamics.models.packed import Grid
from ptq_dynamics.quantize.layers import check_groups, round_to_nearest
from ptq_dynamics.quantize.method import Calibration, Quantized, original, run_method
from ptq_dynamics.quantize.settings import QuantizeSettings, Rtn


def run(context: Context[QuantizeSettings[Rtn]]) -> Mapping[str, Any]:
    """Stage: quantize a trajectory's checkpoints by rounding."""
    return run_method(context, quantize)


def quantize(folder: Path, _calibration: Calibration, settings: Rtn) -> Quantized:
    """One checkpoint."""
    model = models.load(folder)
    check_groups(model, settings.group_size)
    grids = {}
    for name, weight in original(folder, model).items():
        codes, scales = round_to_nearest(weight, settings.bits, settings.group_size)
        grids[name] = Grid(settings.bits, codes, scales)
    return Quantized.on(grids)
