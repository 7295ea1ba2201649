"""The job that typesets the paper, over the chosen figures, claims and tables."""

import math
from collections.abc import Iterator
from typing import Any

from ptq_dynamics.config import Figure
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.settings import UNITS, rounded, short
from ptq_dynamics.graph.regime import NUMBERS, Dimensionless, peak_rate, regimes, tokens_of
from ptq_dynamics.paper import settings as paper

# Of a scale, what only says how jobs are run.
ASIDE = {"resources", "threads", "jobs_per_device", "warm", "keep", "shard", "log_every"}


def typeset(plan: Any, theirs: Any) -> Job:
    """The paper of a plan, in a folder of its own beside the text, beside the plan of what is
    published; raises `Problem` where the text is missing."""
    site, config, scale = plan.site, plan.site.config, plan.site.config.scale
    settings = paper.PaperSettings(
        description=scale.description,
        told={
            "scale": {
                "name": config.choice.scale,
                "description": scale.description,
                "miniatures": scale.miniatures is not None,
            },
            "figures": {name: _told(plan, name, each) for name, each in plan.written.items()},
            "tables": {name: table.title for name, table in config.tables.items()},
            "numbers": {
                **dict(numbers(plan)),
                **{f"paper.{key}": value for key, value in numbers(theirs)},
            },
            "configuration": list(
                _leaves(scale.model_dump(mode="json", exclude=ASIDE, exclude_none=True), "")
            ),
            "columns": ["peak rate", "tokens", *NUMBERS],
            "regime": list(_regime(plan, theirs)),
        },
        figures=tuple(plan.figures.chosen),
        sources=paper.sources(site.root),
    )
    inputs = {paper.label(name): [plan.figures.figure(name).manifest] for name in settings.figures}
    inputs[paper.JUDGED] = [plan.claims.judge().manifest]
    inputs[paper.TABLES] = [plan.tables.write().manifest]
    inputs[paper.MEASURED] = [plan.figures.collect().manifest]
    files = (paper.PAPER, paper.DATA)
    return site.add(Job("paper.typeset", "paper", site.paper, inputs, settings, files=files))


def _told(plan: Any, name: str, figure: Figure) -> dict[str, Any]:
    """What the text is told of a figure; `missing`: why it is not drawn, where it is not."""
    config = plan.site.config
    # Of a figure that is left out whole, all of its trajectories are.
    gone = plan.site.left_out.get(name, tuple(figure.trajectories))
    missing = None
    if name not in config.figures:
        missing = f"{config.scale.description} leaves out {', '.join(gone)}"
        reasons = {**config.runs.unknown, **config.scale.regime.left_out}
        why = dict.fromkeys(reasons[each] for each in gone if each in reasons)
        missing += f" ({'; '.join(why)})" if why else ""
    elif name not in plan.figures.chosen:
        missing = "it was not chosen for this build"
    words = {"title": figure.title, "caption": figure.caption}
    return {**words, "without": list(gone), "missing": missing}


def _regime(plan: Any, theirs: Any) -> Iterator[dict[str, Any]]:
    """The runs that the chosen figures show: numbers here and as published, and whether they are
    not alike."""
    chosen = [plan.site.config.figures[name] for name in plan.figures.chosen]
    shown = {run.name for figure in chosen for run in plan.figures.runs(figure)}
    published = dict(regimes(theirs))
    for name, mine in regimes(plan):
        if name in shown:
            other = published.get(name)
            unlike, both = mine.unlike(other), _row(plan, name, mine)
            beside = _row(theirs, name, other) if other else [None] * len(both)
            cells = [
                [_brief(here), _brief(there), key in unlike]
                for key, here, there in zip(["", "", *NUMBERS], both, beside, strict=True)
            ]
            yield {"run": name, "cells": cells}


def _row(plan: Any, name: str, found: Dimensionless) -> list[float | None]:
    numbers = (getattr(found, key) for key in NUMBERS)
    return [peak_rate(plan, name), float(tokens_of(plan, name)), *numbers]


def numbers(plan: Any) -> Iterator[tuple[str, int | str]]:
    """Numbers of a configuration by key: of the scale, its models and quantizers, and of all runs
    that it trains."""
    config, timeline = plan.site.config, plan.site.timeline
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
    else:
        whole = isinstance(content, list | tuple)
        yield place, ", ".join(map(str, content)) if whole else str(content)


def _brief(value: float | None) -> str | None:
    if value is None or math.isnan(value):
        return None
    return f"{value:.3g}" if value < UNITS["k"] else rounded(value)
