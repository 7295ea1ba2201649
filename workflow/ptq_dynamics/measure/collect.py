"""Collect all measurements of a scale in one table."""

from collections.abc import Mapping

from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import MEASUREMENTS
from ptq_dynamics.measure.series import CollectSettings


def run(context: Context[CollectSettings]) -> Mapping[str, object]:
    """Write measurements.csv from the raw results of every series."""
    frame = measurements.join(context.settings.series, context.inputs)
    frame.to_csv(context.out / MEASUREMENTS, index=False)
    return {"rows": len(frame)}
