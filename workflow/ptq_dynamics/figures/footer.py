"""The line above every figure: the scale it was made at."""

from ptq_dynamics.figures.settings import FigureSettings, rounded
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.trajectories.trajectory import Trajectory

BACKENDS = {"gptq": "llm-compressor", "gptqmodel": "GPTQModel", "autogptq": "AutoGPTQ"}


def footer(context: Context[FigureSettings]) -> str:
    """The scale that a figure was made at: its name, parameters, tokens, and tool for GPTQ."""
    runs = [context.input(run.label) for run in context.settings.runs]
    sizes = sorted({rounded(manifest.facts["parameters"]) for manifest in runs})
    tokens = max(Trajectory([manifest]).checkpoints[-1].tokens or 0 for manifest in runs)
    found = [f"{' and '.join(sizes)} parameters", f"{rounded(tokens)} tokens"]
    seeds = {run.seed for run in context.settings.runs}
    if len(seeds) > 1:
        found.append(f"{len(seeds)} seeds")
    sets = max((len(shown.draws) for shown in context.settings.quantizers), default=1)
    if sets > 1:
        found.append(f"{sets} calibration sets")
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
