"""The line above a figure, which describes its scale, and the notes below its caption."""

from collections.abc import Mapping, Sequence

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.figures.settings import rounded
from ptq_dynamics.train.trajectory import Trajectory

BACKENDS = {"gptq": "llm-compressor", "gptqmodel": "GPTQModel"}


def made_at(settings: FigureSettings, inputs: Mapping[str, Sequence[Manifest]]) -> str:
    """Return one line on the figure's scale: name, parameters, tokens and seeds."""
    runs = {run: Trajectory(inputs[run.label]) for run in settings.runs}
    sizes = sorted({run.fact("parameters") for run in runs.values()})
    size = " to ".join(dict.fromkeys(map(rounded, (sizes[0], sizes[-1]))))
    small = {run.stands_for for run in runs} - {None}
    kind = f" (miniature{'s' * (len(small) > 1)})" if small else ""
    tokens = max(run.checkpoints[-1].tokens or 0 for run in runs.values())
    seeds = _counted(len({run.seed for run in runs}), "seed")
    seen = f", {rounded(tokens)} tokens" if tokens else ""
    return f"{settings.scale}: {size} parameters{kind}{seen}, {seeds}"


def notes(settings: FigureSettings, inputs: Mapping[str, Sequence[Manifest]]) -> list[str]:
    """Return notes on miniatures, the tool for GPTQ and calibration sets, and planned notes."""
    sizes = {
        run.stands_for: rounded(Trajectory(inputs[run.label]).fact("parameters"))
        for run in settings.runs
        if run.stands_for
    }
    several = ", ".join(f"{name} {size}" for name, size in sizes.items())
    said = [f"Parameters of miniatures: {several}."] if len(sizes) > 1 else []
    # A scale may use other settings than the figure names.
    tools = dict.fromkeys(
        BACKENDS[shown.method] + (f" ({shown.draws[0]})" if shown.draws[0] != shown.name else "")
        for shown in settings.quantizers
        if shown.method in BACKENDS
    )
    sets = max((len(shown.draws) for shown in settings.quantizers if shown.calibrated), default=0)
    made = [f"GPTQ by {' and '.join(tools)}"] if tools else []
    made += [_counted(sets, "calibration set")] if sets else []
    said += [f"{', '.join(made)}."] if made else []
    return [*said, *settings.notes]


def _counted(count: int, what: str) -> str:
    return f"{count}\N{NO-BREAK SPACE}{what}{'' if count == 1 else 's'}"
