"""What stands around the panels of a figure: a legend below, and small words above, which say the
scale that it was made at."""

from collections.abc import Mapping, Sequence
from itertools import islice
from textwrap import wrap

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.figures.settings import ALIKE, ShownRun, rounded
from ptq_dynamics.figures.style import SMALLEST
from ptq_dynamics.train.trajectory import Trajectory

ENTRY, LETTER = 0.42, 0.052  # inches of an entry of the legend without its label, and of a letter
SMALL_LETTER, SMALL_LINE = 0.049, 0.115  # inches of a letter, and a line, of those at the top
LINES = 3  # at the top, for which there is room
MOST = 5  # columns of the legend
BACKENDS = {"gptq": "llm-compressor", "gptqmodel": "GPTQModel", "autogptq": "AutoGPTQ"}


def head(figure: Figure, words: Sequence[str]) -> None:
    """Small words at the top right, in as many lines as they take."""
    width = int(figure.get_figwidth() / SMALL_LETTER)
    rows = wrap("; ".join(words), width, break_on_hyphens=False)
    beyond = len(rows) - LINES
    if beyond > 0:
        figure.set_figheight(figure.get_figheight() + beyond * SMALL_LINE)
    figure.suptitle("\n".join(rows), x=0.995, ha="right", fontsize=SMALLEST, color="0.35")


def legend(
    figure: Figure, axes: Sequence[Axes], more: Mapping[str, Artist], curves: Sequence[str] = ()
) -> None:
    """One legend below the panels: every label once, in the order of the curves, then some more, as
    many in a row as there is room for; none where there is one curve alone."""
    found: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    found = {**{label: found[label] for label in curves if label in found}, **found, **more}
    if len(found) < 2:
        return
    columns = _columns([len(label) for label in found], figure.get_figwidth())
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns)


def _columns(lengths: Sequence[int], width: float) -> int:
    """The most columns that have room for labels of so many letters, which fill one
    after the other."""
    for columns in range(min(MOST, len(lengths)), 1, -1):
        rows, more = divmod(len(lengths), columns)
        rest = iter(lengths)
        each = [list(islice(rest, rows + (at < more))) for at in range(columns)]
        if sum(ENTRY + LETTER * max(column) for column in each) <= width:
            return columns
    return 1


def footer(settings: FigureSettings, inputs: Mapping[str, Sequence[Manifest]]) -> str:
    """The scale that a figure was made at: its name, parameters, tokens, seeds, calibration sets
    and tool for GPTQ; and what its labels need said."""
    runs = {run: Trajectory(inputs[run.label]) for run in settings.runs}
    tokens = max(run.checkpoints[-1].tokens or 0 for run in runs.values())
    found = [_sizes(runs), f"{rounded(tokens)} tokens"]
    found.append(_counted(len({run.seed for run in settings.runs}), "seed"))
    sets = calibration_sets(settings)
    if sets is not None:
        found.append(_counted(sets, "calibration set"))
    words = [f"{settings.scale}: {', '.join(found)}", *_backends(settings)]
    if settings.left_out:
        words.append(f"left out: {', '.join(settings.left_out)}")
    if settings.uncertain:
        words.append(f"uncertain of {', '.join(settings.uncertain)}")
    if any(ALIKE in curve for curve, _ in settings.curves):
        words.append(f"{ALIKE} marks the paper's value")
    return "; ".join(words)


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


def _counted(number: int, what: str) -> str:
    # In words that do not part at the end of a line.
    return f"{number}\N{NO-BREAK SPACE}{what}{'' if number == 1 else 's'}"


def _backends(settings: FigureSettings) -> list[str]:
    """The tools that stand for GPTQ, with the settings' name where the scale takes others than
    those the figure names."""
    tools: dict[str, None] = {}
    for shown in settings.quantizers:
        if shown.method in BACKENDS:
            other = f" ({shown.used})" if shown.used != shown.name else ""
            tools[f"{BACKENDS[shown.method]}{other}"] = None
    return [f"GPTQ by {' and '.join(tools)}"] if tools else []
