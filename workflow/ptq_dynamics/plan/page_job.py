"""The job of the page to browse, which the stage `report.page` writes."""

from functools import cache
from pathlib import Path

from ptq_dynamics.base import needs
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.plan.site import Planner, Site
from ptq_dynamics.plan.table_jobs import TableJobs

TEMPLATE = Path(__file__).parents[1] / "report/page.html"


class PageSettings(Strict):
    """Contents of the page."""

    description: str  # of the scale
    figures: tuple[tuple[str, str, str], ...]  # names, titles and captions
    tables: tuple[tuple[str, str], ...]  # names and titles
    template: str


class PageJob(Planner):
    """The page of the chosen figures, claims and tables."""

    def __init__(self, site: Site, tables: TableJobs) -> None:
        super().__init__(site)
        self.tables = tables

    @cache
    def write(self) -> Job:
        """Return the job of the page; raises `Problem` if a claim or table is wrong."""
        inputs, figures = dict[str, list[str]](), list[tuple[str, str, str]]()
        for name in sorted(self.config.chosen):
            inputs[needs.figure(name)] = [self.tables.figures.figure(name).manifest]
            figure = self.config.figures[name]
            figures.append((name, figure.title, " ".join(figure.caption.split())))
        inputs |= {needs.TABLES: [self.tables.write().manifest]}
        inputs |= {needs.CLAIMS: [self.tables.claims.judge().manifest]}
        settings = PageSettings(
            description="; ".join(filter(None, [self.scale.description, self.scale.note])),
            figures=tuple(figures),
            tables=tuple((name, table.title) for name, table in self.config.tables.items()),
            template=TEMPLATE.read_text(encoding="utf-8"),
        )
        return self.make("report", "report.page", "index", inputs, settings)
