"""The loss in the plane of a final checkpoint, an earlier one and the quantized final one."""

import shutil
from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.curvature import plane
from ptq_dynamics.curvature.settings import GRID, POINTS, LandscapeSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import ERROR, LOSS
from ptq_dynamics.quantize.storage import quietly
from ptq_dynamics.train.trajectory import Trajectory


def run(context: Context[LandscapeSettings]) -> Mapping[str, Any]:
    """Write the loss on a regular grid and at the three checkpoints (figures 8, 25), and at these
    the standard error, over blocks, of its difference to the final one; facts: the distances
    between them."""
    settings, source = context.settings, Trajectory(context.inputs["trajectory"])
    corpus, packed = context.input("corpus"), context.scratch / "packed"
    validation = tokens.blocks(corpus, "validation", settings.context, settings.blocks)
    final, previous = map(source.folder, source.at([settings.final, settings.previous]))
    shutil.rmtree(packed, ignore_errors=True)
    calibration = settings.calibration.read(corpus)
    with quietly(context):
        (result,) = settings.quantizer.each([final], calibration, context)
        result.save(final, packed)
    state, model = models.dequantized(packed), models.load(final, torch.float32)
    parameters = dict(model.named_parameters())
    here = plane.flatten(parameters)
    there = plane.flatten(dict(models.load(previous, torch.float32).named_parameters()))
    rounded = plane.flatten({name: state[name] for name in parameters})
    section = plane.plane(here, there, rounded.to(here.device))
    ordered = [parameters[name] for name in sorted(parameters)]

    def losses(x: float, y: float) -> Tensor:
        at = section.origin + x * section.u + y * section.v
        vector_to_parameters(at.to(here), ordered)
        return models.block_losses(model, validation, settings.batch)

    places, points, grid = section.points.tolist(), [], []
    found = [losses(x, y) for x, y in places]
    for name, (x, y), each in zip(("final", "previous", "quantized"), places, found, strict=True):
        error = float((each - found[0]).std() / len(each) ** 0.5)
        points.append({"point": name, "x": x, "y": y, LOSS: float(each.mean()), ERROR: error})
    for x, y in plane.grid(section.points, settings.side, settings.margin).flatten(0, 1).tolist():
        grid.append({"x": x, "y": y, LOSS: float(losses(x, y).mean())})
        context.progress.maybe(f"{len(grid)} of {settings.side**2} grid points")
    pd.DataFrame(grid).to_csv(context.out / GRID, index=False)
    pd.DataFrame(points).to_csv(context.out / POINTS, index=False)
    return {
        "distance_previous": section.training_distance,
        "distance_quantized": section.quantization_distance,
    }
