"""The part of a curvature job that is the same for every probe of the Hessian."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.geometry.hessian import LossHessian
from ptq_dynamics.geometry.settings import CurvatureSettings
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.measure import measurements
from ptq_dynamics.trajectories import trajectory


class Metric(NamedTuple):
    """One measured value of the Hessian and its error, where there is one."""

    name: str
    value: float
    error: float | None


S = TypeVar("S", bound=CurvatureSettings)
# The Hessian of the loss on the probe split, and the job's settings → what is measured.
Probe = Callable[[LossHessian, S], Iterator[Metric]]


def run_probe(context: Context[S], probe: Probe[S]) -> Mapping[str, Any]:
    """Measure the job's checkpoints of its input trajectory, in full precision."""
    settings, source = context.settings, context.input("trajectory")
    probes = tokens.blocks(context.input("corpus"), "probe", settings.context, settings.sequences)
    rows = []
    for checkpoint in trajectory.at_steps(source, settings.steps):
        folder = source.subfolder(checkpoint.folder)
        # Fused attention has no second derivative.
        model = models.load(folder, attn_implementation="eager")
        hessian = LossHessian(model, probes, settings.batch, keep_graph=settings.keep_graph)
        for metric in probe(hessian, settings):
            measured = {"metric": metric.name, "value": metric.value, "stderr": metric.error}
            rows.append(measurements.row(settings.columns, source, checkpoint) | measured)
        context.progress.maybe(f"step {checkpoint.step}")
    measurements.write(measurements.table(rows), context.out / measurements.FILE)
    return {"rows": len(rows)}
