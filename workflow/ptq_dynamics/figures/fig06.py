"""Figure 6: four peak learning rates."""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.figures.parametric import draw_parametric
from ptq_dynamics.jobs.context import Context


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure."""
    return draw_parametric(context)
