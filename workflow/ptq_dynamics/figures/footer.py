"""The line above every figure: the scale it was made at."""

from ptq_dynamics.figures.settings import FigureSettings
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.trajectories.trajectory import Trajectory

BACKENDS = {"gptq": "llm-compressor", "gptqmodel": "GPTQModel", "autogptq": "AutoGPTQ"}


def footer(context: Context[FigureSettings]) -> str:
    """The scale that a figure was made at: its name, parameters, tokens, and tool for GPTQ."""
    runs = [context.input(run.label) for run in context.settings.runs]
    sizes = sorted({_short(manifest.facts["parameters"]) for manifest in runs})
    tokens = max(Trajectory([manifest]).checkpoints[-1].tokens or 0 for manifest in runs)
    found = [f"{' and '.join(sizes)} parameters", f"{_short(tokens)} tokens"]
    seeds = {run.seed for run in context.settings.runs}
    if len(seeds) > 1:
        found.append(f"{len(seeds)} seeds")
    left_out = ", ".join(context.settings.left_out)
    rest = f"; left out: {left_out}" if left_out else ""
    return f"{context.settings.scale}: {', '.join(found)}{_backends(context.settings)}{rest}"


def _backends(settings: FigureSettings) -> str:
    """The tools that stand for GPTQ, with the settings' name where the scale takes others than
    those the figure names."""
    tools: dict[str, None] = {}
    for shown in settings.quantizers:
        if shown.method in BACKENDS:
            other = f" ({shown.used})" if shown.used != shown.name else ""
            tools[f"{BACKENDS[shown.method]}{other}"] = None
    return f"; GPTQ by {' and '.join(tools)}" if tools else ""


def _short(number: float) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size / 10:
            return f"{number / size:.3g}{unit}" if number >= size else f"{number / size:.2f}{unit}"
    return f"{number:.0f}"
