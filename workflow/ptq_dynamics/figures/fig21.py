"""Figure 21: cosine schedules over several horizons."""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.figures.overtokens import draw_over_tokens
from ptq_dynamics.jobs.context import Context


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure."""
    return draw_over_tokens(context)
