"""The job that typesets the paper, and dimensionless numbers of runs to compare with the paper's.

Runs of models of different sizes are alike if these numbers are, not if their settings are."""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from operator import itemgetter
from typing import Any

from ptq_dynamics.config import Figure, PublicRun
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.labels import UNITS, rounded, short
from ptq_dynamics.graph.site import Site
from ptq_dynamics.paper.typeset import PaperSettings, sources
from ptq_dynamics.train.optimizers import Optimizer
from ptq_dynamics.train.schedules import Schedule

# Keys of a scale without influence on results.
ASIDE = {"resources", "threads", "jobs_per_device", "warm", "keep", "shard", "log_every"}
Phase = tuple[int, Schedule, Optimizer]  # with its first step
ALIKE = (0.8, 1.25)  # limits of the ratio of two numbers
LOOKS = 10_000  # most steps at which the decay of a run is evaluated


def typeset(plan: Any, theirs: Any) -> Job:
    """Return the paper's job; `theirs` is the plan of scale paper."""
    site, config = plan.site, plan.site.config
    scale = config.scale.model_dump(mode="json", exclude=ASIDE, exclude_none=True)
    figures = [config.figures[name] for name in config.chosen]
    shown = {run.name for figure in figures for run in plan.figures.runs(figure)}
    told = {
        "scale": {
            "name": config.choice.scale,
            "description": config.scale.description,
            "miniatures": config.scale.miniatures is not None,
        },
        "figures": {
            name: _told(plan, name, figure)
            for name, figure in plan.written.items()
            if figure.group is None or name in config.chosen
        },
        "tables": {name: table.title for name, table in config.tables.items()},
        "numbers": dict(_leaves({**numbers(site), "paper": numbers(theirs.site)})),
        "configuration": [(key, str(value)) for key, value in _leaves(scale)],
        "columns": COLUMNS,
        "regime": [each for each in beside(plan, theirs) if each["run"] in shown],
    }
    needs = {f"figure {name}": plan.figures.figure(name) for name in config.chosen}
    needs |= {"claims": plan.claims.judge(), "tables": plan.tables.write()}
    needs |= {"measurements": plan.figures.collect()}
    inputs = {label: [job.manifest] for label, job in needs.items()}
    settings = PaperSettings(told=told, sources=sources(site.root))
    return site.make("typeset", "paper.typeset", "paper", inputs, settings)


def _told(plan: Any, name: str, figure: Figure) -> dict[str, Any]:
    """Return a figure's words; `missing` is the reason if it is not drawn."""
    config = plan.site.config
    gone = list(plan.site.left_out.get(name, figure.trajectories))
    missing = None
    if name not in config.figures:
        reasons = {**config.runs.unknown, **config.scale.regime.left_out}
        why = dict.fromkeys(reasons[each] for each in gone if each in reasons)
        missing = f"{config.scale.description} leaves out {', '.join(gone)}"
        missing += f" ({'; '.join(why)})" if why else ""
    elif name not in plan.site.config.chosen:
        missing = "it was not chosen for this build"
    words = {"title": figure.title, "caption": figure.caption}
    return {**words, "without": gone, "missing": missing}


def numbers(site: Site) -> dict[str, Any]:
    """Return numbers of a configuration: of the scale, models, quantizers and runs."""
    config, timeline, scale = site.config, site.timeline, site.config.scale
    first, texts = next(iter(scale.models.values())), scale.calibration
    blocks = scale.evaluation.count(first.context)
    of_scale = {
        "steps": scale.budget,
        "seeds": ", ".join(map(str, timeline.seeds)),
        "seed-count": len(timeline.seeds),
        "calibration-sets": texts.draws,
        "calibration-sequences": texts.documents or texts.count(first.context),
        "validation-blocks": blocks,
        "validation-tokens": blocks * first.context,
        "probe-blocks": scale.curvature.count(first.context),
        "trace-samples": scale.curvature.trace_samples,
        "grid": scale.landscape.side**2,
    }
    models, runs = dict[str, Any](), dict[str, Any]()
    for name, shape in scale.models.items():
        vocabulary = scale.whole(shape.corpus).vocabulary
        models[name] = shape.model_dump(include={"layers", "width", "context"}) | {
            "parameters": rounded(shape.parameters(vocabulary)),
            "vocabulary": vocabulary,
        }
    for name, run in config.runs.runs.items():
        trained, whole = run.trained(timeline), run.whole(timeline)
        runs[name] = _plain(run.optimizer_in(timeline)) | {
            "tokens": rounded(run.tokens(timeline)),
            "batch-tokens": trained.batch * trained.context,
            "peak-rate": short(whole.peak(timeline)),
            "warmup-steps": whole.warmup_steps(timeline),
        }
    quantizers = {n: _plain(q.resolved(first.widths)) for n, q in config.quantizers.items()}
    return {"scale": of_scale, "models": models, "runs": runs, "quantizers": quantizers}


def _plain(settings: Any) -> dict[str, str]:
    items = settings.model_dump(mode="json").items()
    return {key.replace("_", "-"): f"{n:g}" for key, n in items if type(n) in (int, float)}


def _leaves(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all values by dotted key, lists as one text."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _leaves(value, f"{place}.{key}" if place else str(key))
    else:
        yield place, ", ".join(map(str, content)) if isinstance(content, list) else content


@dataclass(frozen=True)
class Dimensionless:
    """Dimensionless numbers of a run from fresh weights to its end, besides peak rate and tokens.

    `e_folds`: sum over steps of the share of a weight that weight decay removes. `timescale`: steps
    in which it removes 1 - 1/e at the peak rate, as a share of the run; None without decay.
    `warmup`, `cooldown`, `batch` (one step): shares of the run. `epochs`: passes over the text."""

    peak: float
    tokens: float
    e_folds: float
    timescale: float | None
    warmup: float
    cooldown: float
    tokens_per_parameter: float
    epochs: float
    batch: float

    def unlike(self, other: "Dimensionless | None") -> set[str]:
        """Return names of the numbers that differ from another run's. Less than one epoch, and more
        tokens per parameter, count as alike."""
        # The epochs of public models are unknown.
        epochs = 1.0 if other is None or math.isnan(other.epochs) else max(1.0, other.epochs)
        found = {"epochs"} if self.epochs > epochs else set[str]()
        for name in NUMBERS if other else ():
            mine, theirs = getattr(self, name), getattr(other, name)
            ratio = mine / theirs if mine and theirs else 1.0 if mine == theirs else math.inf
            most = math.inf if name == "tokens_per_parameter" else ALIKE[1]
            if name != "epochs" and not ALIKE[0] <= ratio <= most:
                found.add(name)
        return found


NUMBERS = [field.name for field in fields(Dimensionless)][2:]
COLUMNS = ["peak rate", "tokens", *NUMBERS]


def beside(plan: Any, theirs: Any) -> Iterator[dict[str, Any]]:
    """Yield the numbers of every run, with the published ones and whether both differ."""
    published = dict(regimes(theirs))
    for name, found in regimes(plan):
        other = published.get(name)
        unlike, others = found.unlike(other), astuple(other) if other else [None] * len(COLUMNS)
        rows = map(_text, astuple(found)), map(_text, others), [key in unlike for key in COLUMNS]
        yield {"run": name, "cells": [[*cell] for cell in zip(*rows, strict=True)]}


def regimes(plan: Any) -> Iterator[tuple[str, Dimensionless]]:
    """Yield the numbers of all runs of a plan and of public models with known runs, by name."""
    timeline, config = plan.site.timeline, plan.site.config
    for name, run in config.runs.runs.items():
        way = [run]
        while way[0].sources():
            way.insert(0, way[0].before(timeline))
        phases = [
            (each.ends(timeline)[0], each.schedule_in(timeline), each.optimizer_in(timeline))
            for each in way
        ]
        (first, steps), trained = run.ends(timeline), run.trained(timeline)
        tokens, batch = run.tokens(timeline), trained.batch * trained.context
        # Another corpus starts at its beginning.
        is_other = trained.corpus != way[0].trained(timeline).corpus
        read = (steps - first) * batch if is_other else tokens
        epochs = read / config.scale.corpora[trained.corpus].train
        yield name, _regime(plan, name, phases, steps, batch, tokens, epochs)
    for name, public in config.runs.public.items():
        if isinstance(public, PublicRun):
            steps = max(each.step or 0 for each in public.revisions.values())
            tokens = max(each.tokens or 0 for each in public.revisions.values())
            phases = [(0, public.earlier, public.optimizer)]
            phases.append((public.first, public.schedule, public.optimizer))
            yield name, _regime(plan, name, phases, steps, public.batch, tokens, math.nan)


def _regime(
    plan: Any, name: str, phases: list[Phase], steps: int, batch: float, tokens: int, epochs: float
) -> Dimensionless:
    def taken(step: int) -> float:
        _, schedule, optimizer = phases[bisect_right(phases, step, key=itemgetter(0)) - 1]
        return optimizer.per_step(schedule.learning_rate(step), schedule.peak)

    _, schedule, optimizer = phases[-1]
    at_peak, looks = optimizer.per_step(schedule.peak, schedule.peak), min(steps, LOOKS)
    every = steps / looks
    return Dimensionless(
        peak=schedule.peak,
        tokens=float(tokens),
        e_folds=every * sum(taken(int((number + 0.5) * every)) for number in range(looks)),
        timescale=1 / (at_peak * steps) if at_peak else None,
        warmup=schedule.warmup / steps,
        cooldown=len(schedule.decay(steps)) / steps,
        tokens_per_parameter=tokens / plan.trajectories.parameters(name),
        epochs=epochs,
        batch=batch / tokens,
    )


def _text(value: float | None) -> str | None:
    if value is None or math.isnan(value):
        return None
    return f"{value:.3g}" if value < UNITS["k"] else rounded(value)
