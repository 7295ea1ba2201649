"""Rounding to the nearest point of the symmetric grid that GPTQ uses: the data-free baseline."""

from pathlib import Path
from typing import Literal

from ptq_dynamics.quantize.methods import Calibration, Grouped, Quantized


class Rtn(Grouped):
    """Rounding to nearest on a symmetric grid."""

    method: Literal["rtn"]
    bits: Literal[2, 3, 4, 5, 6, 7, 8]

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """Quantize the checkpoint in a folder, without the calibration set."""
        from ptq_dynamics import models
        from ptq_dynamics.models.packed import Grid
        from ptq_dynamics.quantize import layers, storage

        grids = {}
        for name, weight in storage.original(folder, models.load(folder)).items():
            codes, scales = layers.round_to_nearest(
                weight.float(), self.bits, self.resolved_group_size
            )
            grids[name] = Grid(self.bits, codes, scales)
        return storage.on_grids(grids)
