"""Figure 25: loss landscapes of the four peak learning rates, 3 bit."""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.figures.landscapes import draw_landscapes
from ptq_dynamics.jobs.context import Context


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure."""
    return draw_landscapes(context)
