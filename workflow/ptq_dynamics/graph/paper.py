"""The job that typesets the paper, over the chosen figures, claims and tables."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache

from ptq_dynamics.config import Figure
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.claims import Claims
from ptq_dynamics.graph.facts import numbers, settings
from ptq_dynamics.graph.figures import Figures
from ptq_dynamics.graph.regime import Dimensionless, peak_rate, regimes, tokens_of
from ptq_dynamics.graph.site import Site
from ptq_dynamics.graph.tables import Tables
from ptq_dynamics.graph.trajectories import Trajectories
from ptq_dynamics.paper import sources
from ptq_dynamics.paper.contents import JUDGED, MEASURED, TABLES, label
from ptq_dynamics.paper.settings import (
    DATA,
    PAPER,
    Beside,
    FigureEntry,
    PaperSettings,
    RegimeRow,
    TableEntry,
)

# What is said of the published runs, by the keys of the same here.
THEIRS = "paper."
FILES = (PAPER, DATA)


@dataclass(frozen=True, eq=False)
class Side:
    """The runs of one scale, here or as published."""

    site: Site
    trajectories: Trajectories

    def basics(self, name: str) -> tuple[float, float]:
        """Peak rate and tokens of a run."""
        return peak_rate(self.site, self.trajectories, name), float(tokens_of(self.site, name))


class Paper:
    """The paper of a scale, in a folder of its own beside the text."""

    def __init__(
        self,
        site: Site,
        trajectories: Trajectories,
        drawn: Figures,
        claims: Claims,
        tables: Tables,
        written: Mapping[str, Figure],
    ) -> None:
        self._site, self._here, self._figures = site, Side(site, trajectories), drawn
        self._claims, self._tables, self._written = claims, tables, written
        self.paths = Paths.at(site.paper)
        self.files = [f"{site.paper}/{name}" for name in FILES]

    @cache
    def typeset(self, published: Callable[[], Side]) -> Job:
        """The paper beside what is published, which is asked for only here; raises `Problem` where
        the text is missing."""
        config, theirs = self._site.config, published()
        told = PaperSettings(
            scale=config.choice.scale,
            description=config.scale.description,
            miniatures=config.scale.miniatures is not None,
            figures=tuple(self._entries()),
            tables=tuple(TableEntry(name, each.title) for name, each in config.tables.items()),
            numbers=(
                *numbers(self._site),
                *((f"{THEIRS}{key}", text) for key, text in numbers(theirs.site)),
            ),
            configuration=tuple(settings(config.scale)),
            columns=("peak rate", "tokens", *(each.name for each in fields(Dimensionless))),
            regime=tuple(self._regime(theirs)),
            sources=sources.find(self._site.root),
        )
        inputs = {
            **{label(name): [self._figures.figure(name).manifest] for name in self._figures.chosen},
            JUDGED: [self._claims.judge().manifest],
            TABLES: [self._tables.write().manifest],
            MEASURED: [self._figures.collect().manifest],
        }
        folder = self._site.paper
        return self._site.add(Job("paper.typeset", "paper", folder, inputs, told, files=FILES))

    def _entries(self) -> Iterator[FigureEntry]:
        for name, figure in self._written.items():
            # Of a figure that is left out whole, all of its trajectories are.
            gone = self._site.left_out.get(name, tuple(figure.trajectories))
            missing = None
            if name not in self._site.config.figures:
                missing = f"{self._site.config.scale.description} leaves out {', '.join(gone)}"
                config = self._site.config
                reasons = {**config.runs.unknown, **config.scale.regime.left_out}
                why = dict.fromkeys(reasons[each] for each in gone if each in reasons)
                missing += f" ({'; '.join(why)})" if why else ""
            elif name not in self._figures.chosen:
                missing = "it was not chosen for this build"
            yield FigureEntry(name, figure.title, figure.caption, gone, missing)

    def _regime(self, theirs: Side) -> Iterator[RegimeRow]:
        """The runs that the chosen figures show."""
        chosen = [self._site.config.figures[name] for name in self._figures.chosen]
        shown = {run.name for figure in chosen for run in self._figures.runs(figure)}
        known = dict(regimes(theirs.site, theirs.trajectories))
        for name, mine in regimes(self._site, self._here.trajectories):
            if name not in shown:
                continue
            other, unlike = known.get(name), mine.unlike(known.get(name))
            published = (None, None) if other is None else theirs.basics(name)
            basics = zip(self._here.basics(name), published, strict=True)
            cells = [_beside(*both, unlike=False) for both in basics]
            for field in fields(Dimensionless):
                both = getattr(mine, field.name), getattr(other, field.name, None)
                cells.append(_beside(*both, unlike=field.name in unlike))
            yield RegimeRow(name, tuple(cells))


def _beside(mine: float | None, theirs: float | None, *, unlike: bool) -> Beside:
    return Beside(_known(mine), _known(theirs), unlike)


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
