"""The line above every figure: the scale it was made at."""

from ptq_dynamics.figures.settings import FigureSettings
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.trajectories.trajectory import Trajectory


def footer(context: Context[FigureSettings]) -> str:
    """The scale that a figure was made at: its name, parameters and tokens."""
    runs = [context.input(run.label) for run in context.settings.runs]
    sizes = sorted({_short(manifest.facts["parameters"]) for manifest in runs})
    tokens = max(Trajectory([manifest]).checkpoints[-1].tokens or 0 for manifest in runs)
    return f"{context.settings.scale}: {' and '.join(sizes)} parameters, {_short(tokens)} tokens"


def _short(number: float) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size / 10:
            return f"{number / size:.3g}{unit}" if number >= size else f"{number / size:.2f}{unit}"
    return f"{number:.0f}"
