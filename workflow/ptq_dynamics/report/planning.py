"""The job that makes the page of what a build of the chosen figures has."""

from functools import cache
from pathlib import Path
from typing import Any

from ptq_dynamics.config import load
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph import Plan
from ptq_dynamics.report.assets import digests
from ptq_dynamics.report.groups import grouped
from ptq_dynamics.report.settings import PAGE, PageSettings, Shown

STEM = PAGE.removesuffix(".html")


class Report:
    """The page over figures, claims and tables of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.paths = Paths.at(plan.site.results, STEM)
        self.files = [f"{plan.site.results}/{PAGE}"]

    @cache
    def page(self) -> Job:
        """The page; raises `Problem` where claims or tables name what the figures have not."""
        plan, site = self._plan, self._plan.site
        inputs = dict[str, list[str]]()
        figures = list[Shown]()
        for group, name in grouped(plan):
            figure = site.config.figures[name]
            drawn = plan.figures.figure(name)
            inputs[f"figure {name}"] = [drawn.manifest]
            runs = list(plan.figures.runs(figure))
            inputs |= {run.label: plan.trajectories.manifests(run.name, run.seed) for run in runs}
            labels = tuple(run.label for run in runs)
            caption = " ".join(figure.caption.split())
            curves = tuple(label for label, _ in drawn.settings.curves)
            figures.append(Shown(name, figure.title, caption, group, curves, labels))
        inputs["claims"] = [plan.claims.judge().manifest]
        inputs["tables"] = [plan.tables.write().manifest]
        settings = PageSettings(
            site.config.choice.scale,
            site.config.scale.description,
            tuple(figures),
            tuple((name, table.title) for name, table in site.config.tables.items()),
            tuple(digests()),
        )
        return site.add(
            Job("report.page", STEM, site.results, inputs, settings, stem=STEM, files=(PAGE,))
        )


def planned(choice: dict[str, Any], folder: Path, root: Path) -> Plan:
    """The plan of a configuration, with its paper and its page."""
    plan = Plan(load(choice, folder), root)
    plan.makers["typeset"] = lambda: plan.typeset(folder)
    plan.makers["report"] = Report(plan).page
    return plan
