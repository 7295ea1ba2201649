"""All measurements of a scale in one table, for people and other tools."""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.jobs.context import Context
from ptq_dynamics.measure import measurements


def run(context: Context) -> Mapping[str, Any]:
    """Write measurements.csv from every trajectory's own."""
    paths = [manifest.file(measurements.FILE) for manifest in context.inputs["measurements"]]
    frame = measurements.read(paths).sort_values(measurements.KEY, kind="stable")
    measurements.write(frame, context.out / measurements.FILE)
    return {"rows": len(frame)}
