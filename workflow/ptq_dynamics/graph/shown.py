"""Checks of figures against the quantizers and tasks of a scale; those against trajectories are of
their layouts."""

from itertools import chain

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Figure
from ptq_dynamics.measure.names import TASK_METRICS
from ptq_dynamics.train.timeline import Timeline


def check_figures(timeline: Timeline) -> None:
    """Raise `Problem`, naming file and key, when a figure cannot be drawn of its trajectories."""
    for name, figure in timeline.config.figures.items():
        place = f"config/figures.yaml: {name}"
        _check_quantizers(timeline, place, figure)
        _check_tasks(timeline, place, figure)
        figure.check(place, timeline)


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
    scale = f" at {timeline.scale.description} (quantizers of the scale)"
    for name, draws in figure.draws.items():
        if name in draws:
            raise Problem(f"{place}.draws.{name} has {name} itself; name others, with another draw")
        every = [name, *draws]
        _check_alike(timeline, f"{place}.draws.{name}", {each: each for each in every})
        few = every[: timeline.scale.calibration.draws]
        taken = {each: timeline.scale.quantizers.get(each, each) for each in few}
        _check_alike(timeline, f"{place}.draws.{name}", taken, scale)


def _check_alike(timeline: Timeline, place: str, taken: dict[str, str], where: str = "") -> None:
    """Quantizers, by the names that a figure has for them, differ in the draw, and in it alone."""
    kinds = {name: timeline.config.quantizers[used] for name, used in taken.items()}
    first, *others = kinds
    seen = {kinds[first].calibration_draw: first}
    for name in others:
        one, other = (kinds[each].model_dump(exclude={"draw"}) for each in (first, name))
        if one != other:
            raise Problem(
                f"{place} has {name}, which differs from {first} in more than its draw{where}; "
                "take one with the same settings"
            )
        same = seen.setdefault(kinds[name].calibration_draw, name)
        if same != name:
            raise Problem(
                f"{place}: {same} and {name} both have draw {kinds[name].calibration_draw}{where}; "
                "give each its own"
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
    if not any(timeline.config.tasks[name].made for name in tasks.names):
        return
    for name in figure.trajectories:
        read = timeline.trajectory(name).model_shape(timeline).context
        if (tasks.context or 0) > read:
            raise Problem(
                f"{file}: tasks.context is {tasks.context:,}, and {name}, which is asked in "
                f"{place}, reads {read:,} tokens; lower it"
            )
