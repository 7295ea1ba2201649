"""The loss in the plane of three checkpoints: final, earlier, quantized final (figures 8, 25)."""

import shutil
from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from ptq_dynamics import models
from ptq_dynamics.base import needs
from ptq_dynamics.corpus import tokens
from ptq_dynamics.curvature.settings import GRID, POINTS, LandscapeSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import ERROR, LOSS
from ptq_dynamics.quantize.storage import quietly
from ptq_dynamics.trajectories.trajectory import Trajectory

# Sine of an angle that float32 checkpoints on a line have from rounding alone.
_COLLINEAR = 1e-6


def run(context: Context[LandscapeSettings]) -> Mapping[str, object]:
    """Write losses on a grid and at the checkpoints; errors are of differences from the final."""
    settings, source = context.settings, Trajectory(context.inputs[needs.TRAJECTORY])
    corpus, packed = context.input(needs.CORPUS), context.scratch / "packed"
    validation = tokens.blocks(corpus, "validation", settings.context, settings.blocks)
    final, previous = map(source.folder, source.at([settings.final, settings.previous]))
    shutil.rmtree(packed, ignore_errors=True)
    calibration = settings.calibration.read(corpus)
    with quietly(context):
        (result,) = settings.quantizer.quantize_all([final], calibration, context)
        result.save(final, packed)
    state, model = models.dequantized(packed), models.load(final, torch.float32)
    parameters = dict(model.named_parameters())
    here = flatten(parameters)
    there = flatten(dict(models.load(previous, torch.float32).named_parameters()))
    rounded = flatten({name: state[name] for name in parameters})
    section = plane(here, there, rounded.to(here.device))
    ordered = [parameters[name] for name in sorted(parameters)]

    def losses(x: float, y: float) -> Tensor:
        at = section.origin + x * section.u + y * section.v
        vector_to_parameters(at.to(here), ordered)
        return models.block_losses(model, validation, settings.batch)

    places, points, rows = section.points.tolist(), [], []
    measured = [losses(x, y) for x, y in places]
    names = ("final", "previous", "quantized")
    for name, (x, y), values in zip(names, places, measured, strict=True):
        error = float((values - measured[0]).std() / len(values) ** 0.5)
        points.append({"point": name, "x": x, "y": y, LOSS: float(values.mean()), ERROR: error})
    for x, y in grid(section.points, settings.side, settings.margin).flatten(0, 1).tolist():
        rows.append({"x": x, "y": y, LOSS: float(losses(x, y).mean())})
        context.progress.maybe(f"{len(rows)} of {settings.side**2} grid points")
    pd.DataFrame(rows).to_csv(context.out / GRID, index=False)
    pd.DataFrame(points).to_csv(context.out / POINTS, index=False)
    return {
        "distance_previous": section.training_distance,
        "distance_quantized": section.quantization_distance,
    }


class Plane(NamedTuple):
    """A plane with orthonormal `u` and `v`, [P] float64. `points` are the final (0, 0), earlier
    (a, 0) and quantized (b, c) checkpoint, a and c positive, [3, 2]; distances are L2."""

    origin: Tensor
    u: Tensor
    v: Tensor
    points: Tensor
    training_distance: float
    quantization_distance: float


def flatten(state: Mapping[str, Tensor]) -> Tensor:
    """Return the floating-point tensors of a state as one vector [P], by sorted name."""
    tensors = [state[name] for name in sorted(state) if state[name].is_floating_point()]
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def plane(final: Tensor, previous: Tensor, quantized: Tensor) -> Plane:
    """Return the plane through three parameter vectors [P]."""
    origin = final.double()
    earlier, rounded = previous.double() - origin, quantized.double() - origin
    training, quantization = (torch.linalg.vector_norm(d).item() for d in (earlier, rounded))
    u = earlier / training
    along = torch.dot(u, rounded)
    rest = rounded - along * u
    rest = rest - torch.dot(u, rest) * u  # again, because the first pass leaves rounding along u
    height = torch.linalg.vector_norm(rest).item()
    if not (training > 0 and height > _COLLINEAR * quantization):
        raise ValueError("no plane: the three checkpoints lie on a line, or are not finite")
    points = [[0.0, 0.0], [training, 0.0], [along.item(), height]]
    places = torch.tensor(points, dtype=torch.float64)
    return Plane(origin, u, rest / height, places, training, quantization)


def grid(points: Tensor, side: int, margin: float) -> Tensor:
    """Return a regular grid, [side, side, 2] float64, where [i, j] is (x_j, y_i). It covers the
    smallest square around the centre of `points` [m, 2], widened on each side by `margin`."""
    low, high = points.double().amin(dim=0), points.double().amax(dim=0)
    middle, half = (low + high) / 2, (high - low).max() / 2 * (1 + 2 * margin)
    ramp = torch.linspace(-1, 1, side, dtype=torch.float64)
    x, y = (centre + half * ramp for centre in middle)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)
