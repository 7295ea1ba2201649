"""Checks of figures against the trajectories that they show."""

from collections.abc import Mapping
from itertools import chain

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import (
    Figure,
    Landscapes,
    Losses,
    MadeTask,
    Onset,
    Pca,
    Windows,
)
from ptq_dynamics.config.quantizers import Kind
from ptq_dynamics.measure.names import TASK_METRICS
from ptq_dynamics.train.averages import Tails
from ptq_dynamics.train.averages.line import Line
from ptq_dynamics.train.settings import TRAINING
from ptq_dynamics.train.timeline import Timeline


def check_figures(timeline: Timeline) -> None:
    """Raise `Problem`, naming file and key, when a figure cannot be drawn of its trajectories."""
    for name, figure in timeline.config.figures.items():
        place = f"config/figures.yaml: {name}"
        _check_quantizers(timeline, place, figure)
        _check_training(timeline, place, figure)
        _check_tasks(timeline, place, figure)
        match figure:
            case Landscapes():
                _check_landscape(timeline, place, figure)
            case Losses() if figure.options.against == "share":
                _check_lines(timeline, place, figure)
            case Onset():
                _check_rates(timeline, place, figure)
            case Windows():
                _check_windows(timeline, place, figure)
            case Pca():
                _check_components(timeline, place, figure)


def _check_quantizers(timeline: Timeline, place: str, figure: Figure) -> None:
    names: dict[str, str] = {}
    for name in (*figure.quantizers, *chain.from_iterable(figure.draws.values())):
        used = timeline.scale.quantizers.get(name, name)
        other = names.setdefault(used, name)
        if other != name:
            raise Problem(
                f"{place}.quantizers has {other} and {name}, but {timeline.scale.description} "
                f"takes {used} for both (quantizers of the scale); leave one out"
            )
    for name, draws in figure.draws.items():
        _check_draws(timeline, f"{place}.draws.{name}", [name, *draws])


def _check_draws(timeline: Timeline, place: str, names: list[str]) -> None:
    quantizers, taken = timeline.config.quantizers, timeline.scale.quantizers
    _check_alike(place, {name: quantizers[name] for name in names}, "")
    if len(names) > len({*names}):
        raise Problem(f"{place} has {names[0]} itself; name others, with another draw")
    used = names[: timeline.scale.calibration.draws]
    kinds = {name: quantizers[taken.get(name, name)] for name in used}
    _check_alike(place, kinds, f" at {timeline.scale.description} (quantizers of the scale)")


def _check_alike(place: str, kinds: Mapping[str, Kind], where: str) -> None:
    first, *others = kinds
    seen = {kinds[first].calibration_draw: first}
    for name in others:
        kind = kinds[name]
        if _beside_draw(kind) != _beside_draw(kinds[first]):
            raise Problem(
                f"{place} has {name}, which differs from {first} in more than its draw{where}; "
                "take one with the same settings"
            )
        other = seen.setdefault(kind.calibration_draw, name)
        if other != name:
            raise Problem(
                f"{place}: {other} and {name} both have draw {kind.calibration_draw}{where}; give "
                "each its own"
            )


def _beside_draw(kind: Kind) -> dict[str, object]:
    return kind.model_dump(exclude={"draw"})


def _check_training(timeline: Timeline, place: str, figure: Figure) -> None:
    averages = [name for name in figure.trajectories if name in timeline.config.runs.averages]
    metrics = [metric for metric in figure.metrics if metric in TRAINING]
    if averages and metrics:
        raise Problem(
            f"{place}.metrics has {metrics[0]}, which an average such as {averages[0]} has not; "
            "show runs alone, or another metric"
        )


def _check_tasks(timeline: Timeline, place: str, figure: Figure) -> None:
    asked = [metric for metric in figure.metrics if metric in TASK_METRICS]
    if not asked:
        return
    tasks, file = timeline.scale.tasks, f"config/scales/{timeline.config.choice.scale}.yaml"
    if tasks is None:
        raise Problem(
            f"{place}.metrics has {asked[0]}, but {file} has no tasks; add them there, or show "
            "another metric"
        )
    if not any(isinstance(timeline.config.tasks[name], MadeTask) for name in tasks.names):
        return
    for name in figure.trajectories:
        read = timeline.trajectory(name).model_shape(timeline).context
        if (tasks.context or 0) > read:
            raise Problem(
                f"{file}: tasks.context is {tasks.context:,}, and {name}, which is asked in "
                f"{place}, reads {read:,} tokens; lower it"
            )


def _check_landscape(timeline: Timeline, place: str, figure: Landscapes) -> None:
    previous = timeline.steps(figure.landscape.previous)
    for name in figure.trajectories:
        steps = [point.step for point in timeline.checkpoints(name) if point.step is not None]
        final = timeline.measured(name)[-1].step
        if final is None or final - previous not in steps:
            away = {(final or 0) - step for step in steps} - {0}
            near = sorted(away, key=lambda steps: abs(steps - previous))
            raise Problem(
                f"{place}.landscape.previous is {previous} steps, but {name} has no checkpoint so "
                f"long before its end (the nearest: {near[:3]} steps)"
            )


def _check_lines(timeline: Timeline, place: str, figure: Losses) -> None:
    averages = timeline.config.runs.averages
    lines = [name for name, found in averages.items() if isinstance(found, Line)]
    for name in figure.trajectories:
        if name not in lines:
            raise Problem(
                f"{place}.options.against is share, but {name} is no line between checkpoints "
                f"(lines: {', '.join(lines) or 'none'}); take tokens"
            )


def _check_rates(timeline: Timeline, place: str, figure: Onset) -> None:
    averages = [name for name in figure.trajectories if name in timeline.config.runs.averages]
    if averages:
        raise Problem(
            f"{place}.curves has {averages[0]}, an average, which has no learning rate to draw the "
            "error against; show runs alone"
        )


def _check_windows(timeline: Timeline, place: str, figure: Windows) -> None:
    if not any(isinstance(timeline.trajectory(name), Tails) for name in figure.trajectories):
        raise Problem(
            f"{place}.curves has no averages at the end of a run, which it draws; name some that "
            "config/runs.yaml has with intervals or memories"
        )


def _check_components(timeline: Timeline, place: str, figure: Pca) -> None:
    models: dict[tuple[object, ...], str] = {}
    for name in figure.trajectories:
        shape = timeline.trajectory(name).model_shape(timeline)
        models.setdefault((shape.model.weights, timeline.tokenized(shape)), name)
    if len(models) > 1:
        raise Problem(
            f"{place}.curves has trajectories of several models "
            f"({', '.join(sorted(models.values()))}); take those of one"
        )
    points = {name: len(timeline.measured(name)) for name in figure.trajectories}
    seeds = {name: timeline.seeds_shown(name, figure.headline) for name in points}
    count = sum(points[name] * len(seeds[name]) for name in points)
    if figure.components >= count:
        raise Problem(
            f"{place}.components is {figure.components}, but its trajectories have {count} "
            "checkpoints, which leaves fewer; lower it"
        )
