"""Figure 22: warmup-stable-decay against cosine."""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.figures.parametric import draw_parametric
from ptq_dynamics.jobs.context import Context


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure."""
    return draw_parametric(context, losses_of=slice(1, None))
