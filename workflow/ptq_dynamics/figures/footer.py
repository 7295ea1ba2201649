"""The line above every figure: the scale it was made at."""

from collections.abc import Mapping

from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.settings import ALIKE, FigureSettings, ShownRun, rounded
from ptq_dynamics.train.trajectory import Trajectory

BACKENDS = {"gptq": "llm-compressor", "gptqmodel": "GPTQModel", "autogptq": "AutoGPTQ"}


def footer(context: Context[FigureSettings]) -> str:
    """The scale that a figure was made at: its name, parameters, tokens, seeds, calibration sets
    and tool for GPTQ; and what its labels need said."""
    runs = {run: Trajectory(context.inputs[run.label]) for run in context.settings.runs}
    tokens = max(run.checkpoints[-1].tokens or 0 for run in runs.values())
    found = [_sizes(runs), f"{rounded(tokens)} tokens"]
    found.append(counted(len({run.seed for run in context.settings.runs}), "seed"))
    sets = calibration_sets(context.settings)
    if sets is not None:
        found.append(counted(sets, "calibration set"))
    left_out = ", ".join(context.settings.left_out)
    rest = f"; left out: {left_out}" if left_out else ""
    uncertain = ", ".join(context.settings.uncertain)
    rest += f"; uncertain of {uncertain}" if uncertain else ""
    if any(ALIKE in curve for curve, _ in context.settings.curves):
        rest += f"; {ALIKE} marks the paper's value"
    return f"{context.settings.scale}: {', '.join(found)}{_backends(context.settings)}{rest}"


def _sizes(runs: Mapping[ShownRun, Trajectory]) -> str:
    """The sizes of the models, and of miniatures what they stand for."""
    sizes: dict[str | None, dict[str, None]] = {}
    for shown, run in runs.items():
        sizes.setdefault(shown.stands_for, {})[rounded(run.fact("parameters"))] = None
    own = " and ".join(sorted(sizes.pop(None, {})))
    small = ", ".join(f"{name} ({' and '.join(found)})" for name, found in sizes.items())
    found = [f"{own} parameters"] if own else []
    plural = "s" if len(sizes) > 1 else ""
    found += [f"miniature{plural} of {small.removesuffix(')')} parameters)"] if small else []
    return ", ".join(found)


def calibration_sets(settings: FigureSettings) -> int | None:
    """The most calibration sets over which an error of the figure is a mean; None where its
    quantizers look at none."""
    calibrated = [shown for shown in settings.quantizers if shown.calibrated]
    return max((len(shown.draws) for shown in calibrated), default=None)


def counted(number: int, what: str) -> str:
    """A number of things, in words that do not part at the end of a line."""
    return f"{number}\N{NO-BREAK SPACE}{what}{'' if number == 1 else 's'}"


def _backends(settings: FigureSettings) -> str:
    """The tools that stand for GPTQ, with the settings' name where the scale takes others than
    those the figure names."""
    tools: dict[str, None] = {}
    for shown in settings.quantizers:
        if shown.method in BACKENDS:
            other = f" ({shown.used})" if shown.used != shown.name else ""
            tools[f"{BACKENDS[shown.method]}{other}"] = None
    return f"; GPTQ by {' and '.join(tools)}" if tools else ""
