"""The job that typesets the paper, over the chosen figures, claims and tables."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any

from ptq_dynamics.config import Figure
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.settings import UNITS, rounded, short
from ptq_dynamics.graph.claims import Claims
from ptq_dynamics.graph.figures import Figures
from ptq_dynamics.graph.regime import Dimensionless, peak_rate, regimes, tokens_of
from ptq_dynamics.graph.site import Site
from ptq_dynamics.graph.tables import Tables
from ptq_dynamics.graph.trajectories import Trajectories
from ptq_dynamics.paper.settings import (
    DATA,
    JUDGED,
    MEASURED,
    PAPER,
    TABLES,
    PaperSettings,
    label,
    sources,
)

FILES = (PAPER, DATA)
# Of a scale, what only says how jobs are run.
ASIDE = {
    "resources",
    "threads",
    "jobs_per_device",
    "warm",
    "keep",
    "shard",
    "sharding",
    "log_every",
}


@dataclass(eq=False)
class Side:
    """The runs of one scale, here or as published."""

    site: Site
    trajectories: Trajectories

    @cached_property
    def regimes(self) -> dict[str, tuple[float, float, Dimensionless]]:
        """By run its peak rate, its tokens, and its numbers without dimension."""
        return {
            name: (
                peak_rate(self.site, self.trajectories, name),
                float(tokens_of(self.site, name)),
                found,
            )
            for name, found in regimes(self.site, self.trajectories)
        }


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
        scale = config.scale.model_dump(mode="json", exclude=ASIDE, exclude_none=True)
        others = {f"paper.{key}": value for key, value in numbers(theirs.site)}
        told = {
            "scale": {
                "name": config.choice.scale,
                "description": config.scale.description,
                "miniatures": config.scale.miniatures is not None,
            },
            "figures": {name: self._told(name, figure) for name, figure in self._written.items()},
            "tables": {name: table.title for name, table in config.tables.items()},
            "numbers": {**dict(numbers(self._site)), **others},
            "configuration": list(_leaves(scale, "")),
            "columns": ["peak rate", "tokens", *(each.name for each in fields(Dimensionless))],
            "regime": list(self._regime(theirs)),
        }
        settings = PaperSettings(
            description=config.scale.description,
            told=told,
            figures=tuple(self._figures.chosen),
            sources=sources(self._site.root),
        )
        inputs = {
            **{label(name): [self._figures.figure(name).manifest] for name in settings.figures},
            JUDGED: [self._claims.judge().manifest],
            TABLES: [self._tables.write().manifest],
            MEASURED: [self._figures.collect().manifest],
        }
        folder = self._site.paper
        return self._site.add(Job("paper.typeset", "paper", folder, inputs, settings, files=FILES))

    def _told(self, name: str, figure: Figure) -> dict[str, Any]:
        """What the text is told of a figure; `missing`: why it is not drawn, where it is not."""
        config = self._site.config
        # Of a figure that is left out whole, all of its trajectories are.
        gone = self._site.left_out.get(name, tuple(figure.trajectories))
        missing = None
        if name not in config.figures:
            missing = f"{config.scale.description} leaves out {', '.join(gone)}"
            reasons = {**config.runs.unknown, **config.scale.regime.left_out}
            why = dict.fromkeys(reasons[each] for each in gone if each in reasons)
            missing += f" ({'; '.join(why)})" if why else ""
        elif name not in self._figures.chosen:
            missing = "it was not chosen for this build"
        words = {"title": figure.title, "caption": figure.caption}
        return {**words, "without": list(gone), "missing": missing}

    def _regime(self, theirs: Side) -> Iterator[dict[str, Any]]:
        """The runs that the chosen figures show: numbers here and as published, and whether they
        are not alike."""
        chosen = [self._site.config.figures[name] for name in self._figures.chosen]
        shown = {run.name for figure in chosen for run in self._figures.runs(figure)}
        names = [field.name for field in fields(Dimensionless)]
        for name, (rate, tokens, mine) in self._here.regimes.items():
            if name in shown:
                basics = theirs.regimes.get(name, (None, None, None))
                pairs = [(rate, basics[0]), (tokens, basics[1])]
                pairs += [(getattr(mine, key), getattr(basics[2], key, None)) for key in names]
                unlike = mine.unlike(basics[2])
                keys = ["", "", *names]
                cells = [
                    [_brief(here), _brief(there), key in unlike]
                    for key, (here, there) in zip(keys, pairs, strict=True)
                ]
                yield {"run": name, "cells": cells}


def numbers(site: Site) -> Iterator[tuple[str, int | str]]:
    """Numbers of a configuration by key: of the scale, its models and quantizers, and of all runs
    that it trains."""
    config, timeline = site.config, site.timeline
    scale = config.scale
    first = next(iter(scale.models.values()))
    blocks = scale.evaluation.count(first.context)
    yield "scale.steps", scale.budget
    yield "scale.seeds", ", ".join(map(str, timeline.seeds))
    yield "scale.seed-count", len(timeline.seeds)
    yield "scale.calibration-sets", scale.calibration.draws
    sequences = scale.calibration.documents or scale.calibration.count(first.context)
    yield "scale.calibration-sequences", sequences
    yield "scale.validation-blocks", blocks
    yield "scale.validation-tokens", blocks * first.context
    yield "scale.probe-blocks", scale.curvature.count(first.context)
    yield "scale.trace-samples", scale.curvature.trace_samples
    yield "scale.grid", scale.landscape.side**2
    for name, shape in scale.models.items():
        vocabulary = scale.whole(shape.corpus).vocabulary
        yield f"models.{name}.parameters", rounded(shape.parameters(vocabulary))
        yield f"models.{name}.vocabulary", vocabulary
        for each in ("layers", "width", "heads", "feedforward", "context"):
            yield f"models.{name}.{each}", getattr(shape, each)
    for name, run in config.runs.runs.items():
        key, trained = f"runs.{name}", run.trained(timeline)
        start, end = run.ends(timeline)
        yield f"{key}.steps", end - start
        yield f"{key}.tokens", rounded(run.tokens(timeline))
        yield f"{key}.batch-tokens", trained.batch * trained.context
        yield f"{key}.peak-rate", short(run.whole(timeline).peak(timeline))
        yield f"{key}.warmup-steps", run.whole(timeline).warmup_steps(timeline)
        decay = getattr(run.optimizer_in(timeline), "weight_decay", None)
        if decay is not None:
            yield f"{key}.weight-decay", f"{decay:g}"
    for name, quantizer in config.quantizers.items():
        for each, value in quantizer.resolved(first.widths).model_dump(mode="json").items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield f"quantizers.{name}.{each.replace('_', '-')}", f"{value:g}"


def _leaves(content: Any, place: str) -> Iterator[tuple[str, str]]:
    """All settings that shape results, by key."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _leaves(value, f"{place}.{key}" if place else str(key))
    elif isinstance(content, list | tuple):
        yield place, ", ".join(map(str, content))
    else:
        yield place, str(content)


def _brief(value: float | None) -> str | None:
    if value is None or math.isnan(value):
        return None
    return f"{value:.3g}" if value < UNITS["k"] else rounded(value)
