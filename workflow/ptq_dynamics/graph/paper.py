"""The job that typesets the paper, over the chosen figures, claims and tables; and the numbers
without dimension of a scale's runs, to be compared with the paper's.

Models of other sizes are alike where these numbers are, not where their settings are."""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from operator import itemgetter
from typing import Any

from ptq_dynamics.config import Figure, PublicRun
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.settings import UNITS, rounded, short
from ptq_dynamics.graph.site import Site
from ptq_dynamics.paper.settings import PaperSettings, sources
from ptq_dynamics.train.optimizers import Optimizer
from ptq_dynamics.train.schedules import Constant, Schedule, learning_rate

# Of a scale, what only says how jobs are run.
ASIDE = {"resources", "threads", "jobs_per_device", "warm", "keep", "shard", "log_every"}
# From a step on: its schedule, and its optimizer.
Phase = tuple[int, Schedule, Optimizer]
# Numbers whose ratio is within these are alike.
ALIKE = (0.8, 1.25)
# Of runs with more steps, some of them millions, so many are looked at.
LOOKS = 10_000


def typeset(plan: Any, theirs: Any) -> Job:
    """The paper of a plan, in a folder of its own beside the text, beside the plan of what is
    published; raises `Problem` where the text is missing."""
    site, config = plan.site, plan.site.config
    scale = config.scale.model_dump(mode="json", exclude=ASIDE, exclude_none=True)
    figures = [config.figures[name] for name in plan.figures.chosen]
    shown = {run.name for figure in figures for run in plan.figures.runs(figure)}
    told = {
        "scale": {
            "name": config.choice.scale,
            "description": config.scale.description,
            "miniatures": config.scale.miniatures is not None,
        },
        "figures": {name: _told(plan, name, figure) for name, figure in plan.written.items()},
        "tables": {name: table.title for name, table in config.tables.items()},
        "numbers": dict(_leaves({**numbers(site), "paper": numbers(theirs.site)})),
        "configuration": [(key, str(value)) for key, value in _leaves(scale)],
        "columns": COLUMNS,
        "regime": [each for each in beside(plan, theirs) if each["run"] in shown],
    }
    needs = {f"figure {name}": plan.figures.figure(name) for name in plan.figures.chosen}
    needs |= {"claims": plan.claims.judge(), "tables": plan.tables.write()}
    needs |= {"measurements": plan.figures.collect()}
    inputs = {label: [job.manifest] for label, job in needs.items()}
    settings = PaperSettings(told=told, sources=sources(site.root))
    return site.make("typeset", "paper.typeset", "paper", inputs, settings)


def _told(plan: Any, name: str, figure: Figure) -> dict[str, Any]:
    """What the text is told of a figure; `missing`: why it is not drawn, where it is not."""
    config = plan.site.config
    # Of a figure that is left out whole, all of its trajectories are.
    gone = list(plan.site.left_out.get(name, figure.trajectories))
    missing = None
    if name not in config.figures:
        reasons = {**config.runs.unknown, **config.scale.regime.left_out}
        why = dict.fromkeys(reasons[each] for each in gone if each in reasons)
        missing = f"{config.scale.description} leaves out {', '.join(gone)}"
        missing += f" ({'; '.join(why)})" if why else ""
    elif name not in plan.figures.chosen:
        missing = "it was not chosen for this build"
    words = {"title": figure.title, "caption": figure.caption}
    return {**words, "without": gone, "missing": missing}


def numbers(site: Site) -> dict[str, Any]:
    """Numbers of a configuration: of the scale, its models and quantizers, and of all runs that it
    trains."""
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
    """Those that are numbers, by key."""
    items = settings.model_dump(mode="json").items()
    return {key.replace("_", "-"): f"{n:g}" for key, n in items if type(n) in (int, float)}


def _leaves(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """All values by key, those of lists as one text."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _leaves(value, f"{place}.{key}" if place else str(key))
    else:
        yield place, ", ".join(map(str, content)) if isinstance(content, list) else content


@dataclass(frozen=True)
class Dimensionless:
    """Numbers without dimension of one run, from fresh weights to its end, after its `peak` rate
    and its `tokens`; of a public model as far as its checkpoints go.

    `e_folds`: Σ of the shares that weight decay takes of a weight, step by step. `timescale`: steps
    in which it takes 1/e at the peak rate, as a share of the run; none without decay. `warmup`,
    `cooldown`: shares of the run. `tokens_per_parameter`. `epochs`: how often the text is seen.
    `batch`: share of the run's tokens in one step."""

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
        """Names of the numbers that are not as those of another run, if there is one; text that is
        seen again is unlike, less of an epoch is not; more text for a parameter is no fault."""
        # What public models have read is not known.
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
    """The regime of every run: its numbers here and as published, and whether they are unlike, by
    `COLUMNS`."""
    published = dict(regimes(theirs))
    for name, found in regimes(plan):
        other = published.get(name)
        unlike, others = found.unlike(other), astuple(other) if other else [None] * len(COLUMNS)
        rows = map(_text, astuple(found)), map(_text, others), [key in unlike for key in COLUMNS]
        yield {"run": name, "cells": [[*cell] for cell in zip(*rows, strict=True)]}


def regimes(plan: Any) -> Iterator[tuple[str, Dimensionless]]:
    """The regime of every run of a plan, and of every public model that is a run, by name."""
    timeline, config = plan.site.timeline, plan.site.config
    for name, run in config.runs.runs.items():
        way = [run]
        while way[0].sources():
            way.insert(0, way[0].before(timeline))
        phases = [
            (each.ends(timeline)[0], plan.trajectories.schedule(each), each.optimizer_in(timeline))
            for each in way
        ]
        (first, steps), trained = run.ends(timeline), run.trained(timeline)
        tokens, batch = run.tokens(timeline), trained.batch * trained.context
        # Another text begins anew.
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
            # What they read, and how often, is not known here.
            yield name, _regime(plan, name, phases, steps, public.batch, tokens, math.nan)


def _regime(
    plan: Any, name: str, phases: list[Phase], steps: int, batch: float, tokens: int, epochs: float
) -> Dimensionless:
    def taken(step: int) -> float:
        _, schedule, optimizer = phases[bisect_right(phases, step, key=itemgetter(0)) - 1]
        return optimizer.per_step(learning_rate(schedule, step), schedule.peak)

    _, schedule, optimizer = phases[-1]
    at_peak, looks = optimizer.per_step(schedule.peak, schedule.peak), min(steps, LOOKS)
    every = steps / looks
    # Of what decays to its end, a cosine or a stage, all but the warmup.
    length = getattr(schedule, "length", steps)
    decays = schedule.warmup if schedule.kind in ("cosine", "stage") else 0
    return Dimensionless(
        peak=schedule.peak,
        tokens=float(tokens),
        e_folds=every * sum(taken(int((number + 0.5) * every)) for number in range(looks)),
        timescale=1 / (at_peak * steps) if at_peak else None,
        warmup=schedule.warmup / steps,
        cooldown=0.0 if isinstance(schedule, Constant) else (length - decays) / steps,
        tokens_per_parameter=tokens / plan.trajectories.parameters(name),
        epochs=epochs,
        batch=batch / tokens,
    )


def _text(value: float | None) -> str | None:
    # To three digits, as all of `COLUMNS`; None where there is none.
    if value is None or math.isnan(value):
        return None
    return f"{value:.3g}" if value < UNITS["k"] else rounded(value)
