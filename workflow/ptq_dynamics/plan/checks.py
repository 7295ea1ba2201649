"""Checks of the configuration that concern more than one file or key."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from ptq_dynamics.config import Branch, Config, Interpolation, Lawa, Whole
from ptq_dynamics.plan.shown import check_figures
from ptq_dynamics.plan.timeline import Timeline
from ptq_dynamics.problem import Problem


def check(timeline: Timeline) -> None:
    """Raise `Problem`, naming file and key, when parts of the configuration do not fit together."""
    config = timeline.config
    _check_names(config)
    for name, run in config.runs.runs.items():
        if isinstance(run, Branch):
            _check_branch(timeline, name, run)
        else:
            _check_warmup(timeline, name, run)
    for name, average in config.runs.averages.items():
        if isinstance(average, Lawa):
            _check_average(timeline, name, average)
        else:
            _check_line(timeline, name, average)
    _check_quantizers(config)
    check_figures(timeline)


def _check_names(config: Config) -> None:
    runs, averages = config.runs.runs, config.runs.averages
    both = sorted(set(runs) & set(averages))
    if both:
        raise Problem(f"config/runs.yaml: {both[0]!r} is the name of a run and of an average")
    chosen = config.choice.figures
    _require(
        "config/config.yaml: figures", "figure", [] if chosen == "all" else chosen, config.figures
    )
    trajectories = {**runs, **averages}
    for name, figure in config.figures.items():
        place = f"config/figures.yaml: {name}"
        _require(f"{place}.curves", "trajectory", figure.trajectories, trajectories)
        _require(f"{place}.quantizers", "quantizer", figure.quantizers, config.quantizers)
    place, backends = "config/backends.yaml", config.backends
    _require(f"{place}: trajectory", "trajectory", [backends.trajectory], trajectories)
    members = chain.from_iterable(backends.groups)
    _require(f"{place}: groups", "quantizer", members, config.quantizers)
    for name, average in averages.items():
        if isinstance(average, Interpolation):
            place = f"config/runs.yaml: averages.{name}"
            _require(place, "trajectory", [average.start, average.end], trajectories)
    for name, shape in config.scale.models.items():
        place = f"config/scales/{config.choice.scale}.yaml: models.{name}.corpus"
        _require(place, "corpus", [shape.corpus], config.scale.corpora)
    for name, run in runs.items():
        if isinstance(run, Whole):
            _require(
                f"config/runs.yaml: runs.{name}.model", "model", [run.model], config.scale.models
            )


def _require(place: str, kind: str, names: Iterable[str], known: Mapping[str, Any]) -> None:
    for name in names:
        if name not in known:
            raise Problem(f"{place} names no known {kind}: {name!r} (known: {', '.join(known)})")


def _check_branch(timeline: Timeline, name: str, run: Branch) -> None:
    place = f"config/runs.yaml: runs.{name}"
    runs = timeline.config.runs.runs
    trunk = runs.get(run.trunk)
    constant = [n for n, r in runs.items() if isinstance(r, Whole) and r.schedule == "constant"]
    if not isinstance(trunk, Whole) or run.trunk not in constant:
        raise Problem(
            f"{place}.trunk is {run.trunk!r}; it must be a run with a constant learning rate: "
            f"{', '.join(constant)}"
        )
    if run.at > trunk.length:
        raise Problem(
            f"{place}.at is {run.at}, after the end of its trunk {run.trunk} at {trunk.length}; "
            "branch earlier, or make the trunk longer"
        )
    step = timeline.steps(run.at)
    kept = timeline.state_steps(run.trunk)
    if step not in kept:
        near = sorted(kept, key=lambda other: abs(other - step))[:3]
        raise Problem(
            f"{place}.at is step {step}, where its trunk {run.trunk} keeps no state to branch from "
            f"(the nearest: {near or 'none'}); change at, or state_every or state_at of the trunk"
        )


def _check_warmup(timeline: Timeline, name: str, run: Whole) -> None:
    warmup = timeline.steps(run.warmup or timeline.config.runs.defaults.warmup)
    steady = timeline.steps(run.length) - (timeline.steps(run.cooldown) if run.cooldown else 0)
    if warmup >= steady:
        raise Problem(
            f"config/runs.yaml: runs.{name}.warmup is {warmup} steps of the {steady} before the "
            "end or the cooldown; lower warmup, or make the run longer"
        )


def _check_line(timeline: Timeline, name: str, line: Interpolation) -> None:
    models = [timeline.trunk(end).model for end in (line.start, line.end)]
    if models[0] != models[1]:
        raise Problem(
            f"config/runs.yaml: averages.{name} goes from a trajectory of model {models[0]!r} to "
            f"one of {models[1]!r}; take two of one model"
        )


def _check_average(timeline: Timeline, name: str, lawa: Lawa) -> None:
    place = f"config/runs.yaml: averages.{name}"
    _require(f"{place}.trajectory", "run", [lawa.trajectory], timeline.config.runs.runs)
    every = timeline.steps(lawa.every)
    grid = timeline.checkpoint_every(lawa.trajectory)
    if every % grid:
        raise Problem(
            f"{place}.every is {every} steps, not a multiple of the {grid} steps between the "
            f"checkpoints of {lawa.trajectory}; change it, or checkpoint_every of the run"
        )
    available = len(timeline.grid(lawa.trajectory)) * grid // every
    if lawa.window > available:
        raise Problem(
            f"{place}.window is {lawa.window}, but {lawa.trajectory} has only {available} "
            f"checkpoints {every} steps apart; lower window or every"
        )


def _check_quantizers(config: Config) -> None:
    for name, quantizer in config.quantizers.items():
        for model, shape in config.scale.models.items():
            wrong = quantizer.misfit((shape.width, shape.feedforward))
            if wrong is not None:
                raise Problem(
                    f"config/quantizers.yaml: {name}.{wrong} (model {model!r} at "
                    f"{config.scale.description})"
                )
