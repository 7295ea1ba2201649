"""The jobs beside those of figures: claims, tables, the paper, the page, and the comparison of
backends, each with all that it needs."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph import Plan
from ptq_dynamics.report.planning import Report


def beyond(plan: Plan) -> Iterable[Job]:
    """These jobs, but for those whose configuration does not fit."""
    last = list[Job]()
    for make in (
        plan.claims.judge,
        plan.tables.write,
        lambda: plan.typeset(Path("config")),
        Report(plan).page,
        plan.measuring.comparison,
    ):
        with contextlib.suppress(Problem):
            last.append(make())
    return plan.site.needed(last)
