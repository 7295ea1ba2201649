"""The part of a curvature job that is the same for every probe of the Hessian."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pandas as pd

from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.curvature.hessian import LossHessian
from ptq_dynamics.curvature.settings import CurvatureSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import CHECKPOINT, ERROR, METRIC, VALUE, VALUES
from ptq_dynamics.train import trajectory
from ptq_dynamics.train.trajectory import Trajectory

S = TypeVar("S", bound=CurvatureSettings)
# Name, value and error, where there is one.
Metric = tuple[str, float, float | None]
# The Hessian of the loss on the probe split, and the job's settings → what is measured.
Probe = Callable[[LossHessian, S], Iterator[Metric]]


def run_probe(context: Context[S], probe: Probe[S]) -> Mapping[str, Any]:
    """Measure the job's checkpoints of its input trajectory, in full precision."""
    settings, source = context.settings, Trajectory(context.inputs["trajectory"])
    probes = tokens.blocks(context.input("corpus"), "probe", settings.context, settings.sequences)
    rows, chosen = [], source.at(settings.checkpoints)
    for checkpoint in chosen:
        # Fused attention has no second derivative.
        model = models.load(source.folder(checkpoint), attn_implementation="eager")
        hessian = LossHessian(model, probes, settings.batch, keep_graph=settings.keep_graph)
        rows += [(checkpoint.id, *metric) for metric in probe(hessian, settings)]
        context.progress.maybe(checkpoint.id)
    table = pd.DataFrame(rows, columns=[CHECKPOINT, METRIC, VALUE, ERROR])
    table.to_csv(context.out / VALUES, index=False)
    digests = {checkpoint.id: source.digest(checkpoint) for checkpoint in chosen}
    return trajectory.facts(chosen, digests=digests, seed=source.fact("seed"))
