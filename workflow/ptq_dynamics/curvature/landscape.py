"""The loss in the plane of a final checkpoint, an earlier one and the quantized final one."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.curvature import plane
from ptq_dynamics.curvature.settings import GRID, POINTS, LandscapeSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.loss import block_losses
from ptq_dynamics.measure.names import ERROR, LOSS
from ptq_dynamics.quantize.storage import quietly
from ptq_dynamics.train.trajectory import Trajectory


def run(context: Context[LandscapeSettings]) -> Mapping[str, Any]:
    """Write the loss on a regular grid and at the three checkpoints (figures 8, 25), and at these
    the standard error, over blocks, of its difference to the final one; facts: the distances
    between them."""
    settings, source = context.settings, Trajectory(context.inputs["trajectory"])
    validation = tokens.blocks(
        context.input("corpus"), "validation", settings.context, settings.blocks
    )
    state = _quantized(context, _folder(source, settings.final))
    model = models.load(_folder(source, settings.final))
    parameters = dict(model.named_parameters())
    here, there, rounded = (
        plane.flatten(each)
        for each in (
            parameters,
            dict(models.load(_folder(source, settings.previous)).named_parameters()),
            {name: state[name] for name in parameters},
        )
    )
    section = plane.plane(here, there, rounded.to(here.device))
    ordered = [parameters[name] for name in sorted(parameters)]

    def losses(x: float, y: float) -> Tensor:
        vector = plane.point(section, x, y).to(here)
        vector_to_parameters(vector, ordered)
        return block_losses(model, validation, settings.batch)

    names = ("final", "previous", "quantized")
    found = [losses(x, y) for x, y in section.points.tolist()]
    errors = [(each - found[0]).std() / len(each) ** 0.5 for each in found]
    points = [
        {"point": name, "x": x, "y": y, LOSS: float(each.mean()), ERROR: float(error)}
        for name, (x, y), each, error in zip(
            names, section.points.tolist(), found, errors, strict=True
        )
    ]
    grid = []
    for x, y in plane.grid(section.points, settings.side, settings.margin).flatten(0, 1).tolist():
        grid.append({"x": x, "y": y, LOSS: float(losses(x, y).mean())})
        context.progress.maybe(f"{len(grid)} of {settings.side**2} grid points")
    pd.DataFrame(grid).to_csv(context.out / GRID, index=False)
    pd.DataFrame(points).to_csv(context.out / POINTS, index=False)
    return {
        "distance_previous": section.training_distance,
        "distance_quantized": section.quantization_distance,
    }


def _quantized(context: Context[LandscapeSettings], folder: Path) -> dict[str, Tensor]:
    """State dict of a checkpoint under the quantizer, as its packed weights have it."""
    settings, target = context.settings, context.scratch / "packed"
    shutil.rmtree(target, ignore_errors=True)
    calibration = settings.calibration.read(context.input("corpus"))
    with quietly(context):
        (result,) = settings.quantizer.each([folder], calibration, context)
        result.save(folder, target)
    return models.dequantized(target)


def _folder(source: Trajectory, name: str) -> Path:
    (checkpoint,) = source.at([name])
    return source.folder(checkpoint)
