"""The line above every figure: the scale it was made at."""

from ptq_dynamics.jobs.context import Context
from ptq_dynamics.trajectories import trajectory


def footer(context: Context) -> str:
    """The scale that a figure was made at: its name, parameters and tokens."""
    runs = context.inputs["runs"]
    sizes = sorted({_short(manifest.facts["parameters"]) for manifest in runs})
    tokens = max(trajectory.checkpoints(manifest)[-1].tokens for manifest in runs)
    return f"{context.settings['scale']}: {' and '.join(sizes)} parameters, {_short(tokens)} tokens"


def _short(number: float) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size / 10:
            return f"{number / size:.3g}{unit}" if number >= size else f"{number / size:.2f}{unit}"
    return f"{number:.0f}"
