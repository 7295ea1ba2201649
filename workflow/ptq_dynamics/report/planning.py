"""The job of the page, and plans with a page and a paper."""

from functools import cache
from pathlib import Path
from typing import Any

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.config import load
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.plan import Plan

PAGE = "index.html"
TEMPLATE = Path(__file__).with_name("page.html")


class PageSettings(Strict):
    """Contents of the page."""

    description: str  # of the scale
    figures: tuple[tuple[str, str, str], ...]  # names, titles and captions
    tables: tuple[tuple[str, str], ...]  # names and titles
    template: str


@cache
def page(plan: Plan) -> Job:
    """Return the job of the page; raises `Problem` if a claim or table is wrong."""
    site, inputs, figures = plan.site, {}, []
    for name in sorted(site.config.chosen):
        inputs[f"figure {name}"] = [plan.figures.figure(name).manifest]
        about = site.config.figures[name]
        figures.append((name, about.title, " ".join(about.caption.split())))
    inputs |= {"tables": [plan.tables.write().manifest], "claims": [plan.claims.judge().manifest]}
    scale = site.config.scale
    settings = PageSettings(
        description="; ".join(filter(None, [scale.description, scale.note])),
        figures=tuple(figures),
        tables=tuple((name, table.title) for name, table in site.config.tables.items()),
        template=TEMPLATE.read_text(encoding="utf-8"),
    )
    return site.make("report", "report.page", "index", inputs, settings)


def planned(choice: dict[str, Any], folder: Path, root: Path) -> Plan:
    """Return the plan of a configuration, with paper and page."""
    plan = Plan(load(choice, folder), root)
    plan.makers["typeset"] = lambda: plan.typeset(folder)
    plan.makers["report"] = lambda: page(plan)
    return plan
