"""The part of a curvature job that is the same for every probe of the Hessian."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.geometry.hessian import LossHessian
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.measure import measurements
from ptq_dynamics.trajectories import trajectory


class Metric(NamedTuple):
    """One measured value of the Hessian and its error, where there is one."""

    name: str
    value: float
    error: float | None


# The Hessian of the loss on the probe split, and the job's configuration → what is measured.
Probe = Callable[[LossHessian, Mapping[str, Any]], Iterator[Metric]]


def run_probe(context: Context, probe: Probe) -> Mapping[str, Any]:
    """Measure the job's checkpoints of its input trajectory, in full precision."""
    config, source = context.settings, context.input("trajectory")
    probes = tokens.blocks(context.input("corpus"), "probe", config["context"], config["sequences"])
    rows = []
    for checkpoint in trajectory.at_steps(source, config["steps"]):
        folder = source.subfolder(checkpoint.folder)
        # Fused attention has no second derivative.
        model = models.load(folder, attn_implementation="eager")
        hessian = LossHessian(model, probes, config["batch"], keep_graph=config["keep_graph"])
        for metric in probe(hessian, config):
            measured = {"metric": metric.name, "value": metric.value, "stderr": metric.error}
            rows.append(measurements.row(config["columns"], source, checkpoint) | measured)
        context.progress.maybe(f"step {checkpoint.step}")
    measurements.write(measurements.table(rows), context.out / measurements.FILE)
    return {"rows": len(rows)}
