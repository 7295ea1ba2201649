"""Panels of figures. The table of a figure, its CSV file, has a row for each drawn point."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from string import ascii_lowercase
from typing import Literal, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import HashableList

from ptq_dynamics.figures.axes import draw_panel
from ptq_dynamics.figures.curves import ABOUT, Curves
from ptq_dynamics.figures.labels import FINDING, Panel, ShownRun, names_in_groups, rounded
from ptq_dynamics.figures.places import RIGHT
from ptq_dynamics.figures.style import HALF, SETTINGS, SMALLEST, TEXT, Look, Styles, in_order, lines
from ptq_dynamics.measure.names import BACKENDS, SEED, STEP, TOKENS, TRAJECTORY
from ptq_dynamics.trajectories.trajectory import Checkpoint, Trajectory

# Columns of the tables of all figures; docs/results.md describes them.
PLACE = ["x", "y", "unit", "low", "high", "segment", "axis", "x_axis", "y_axis"]
COLUMNS = ["panel", "curve", *ABOUT, *PLACE, "loss", "increase"]
LEARNING_RATE = "Learning rate"
UNIT = r"\((%|nats\S*)\)$"  # at the end of an axis's label
HEIGHTS = (2.47, 1.85, 1.55)  # inches of rows with one, two, and more panels
FEW = 5  # curves, for the legend of which half a text column has room
ENTRY, LETTER = 0.42, 0.052  # inches of an entry of the legend without its label, and of a letter
MOST = 5  # columns of the legend


class Picture(NamedTuple):
    """A drawn figure, its table, and its facts."""

    figure: Figure
    table: pd.DataFrame
    facts: dict[str, object]


Draw = Callable[[Axes, Panel, pd.DataFrame, Styles], None]  # draws a panel


class Sheet:
    """The panels of a figure, with letters in their order, and their points."""

    def __init__(self, data: Curves) -> None:
        self.data, self.settings = data, data.settings
        self.panels: list[Panel] = []
        self._parts: list[pd.DataFrame] = []

    def add(self, panel: Panel, *parts: pd.DataFrame, rates: bool = False) -> None:
        """Add a panel with its points, and with the learning `rates` of runs on a right axis."""
        name, uncertain = letters(len(self.panels)), ", ".join(self.settings.uncertain_rates)
        if rates:
            note = f"\n(uncertain of {uncertain})" if uncertain else ""
            panel = replace(panel, right=f"{LEARNING_RATE}{note}")
        self.panels.append(replace(panel, name=name, title=f"({name}) {panel.title}"))
        place = {"panel": name, "x_axis": panel.x, "y_axis": panel.y}
        for part in parts:
            self._parts.append(part.assign(**place))
            if panel.y.endswith("(%)"):
                self._parts[-1][["y", "low", "high"]] *= 100
        if rates:
            self._parts.append(self._rates.assign(**{**place, "y_axis": LEARNING_RATE}))

    @cached_property
    def _rates(self) -> pd.DataFrame:
        """The learning rate at all checkpoints of every run, from the manifests of the runs."""
        data, rows = self.data, list[dict[str, object]]()
        for run in self.settings.runs:
            about = {TRAJECTORY: run.name, SEED: run.seed}
            rows += [{**about, **asdict(c)} for c in self._checkpoints(run)]
        table = pd.DataFrame(rows).drop_duplicates([TRAJECTORY, STEP])
        numbers = table[[STEP, TOKENS]].astype(float)
        table = table.assign(**numbers, value=table.lr.astype(float), stderr=np.nan, metric="lr")
        return data.along(table, data.x).assign(axis="right")

    def _checkpoints(self, run: ShownRun) -> Sequence[Checkpoint]:
        return run.places or Trajectory(self.data.inputs[run.label]).checkpoints

    def publish(
        self,
        curves: Sequence[str] = (),
        columns: int | None = None,
        *,
        notes: Sequence[str] = (),
        draw: Draw | None = None,
        more: Mapping[str, Artist] = {},
    ) -> Picture:
        """Draw all panels in `columns`, by default up to three, with one legend below. It has the
        `curves`, by default those of the data, and `more`. `draw` replaces the function that draws
        a panel. Facts: the number of points, and sentences below the caption, at last `notes`."""
        table, panels = columned(pd.concat(self._parts)), self.panels
        if self.settings.grouped:
            curves = names_in_groups(self.data.labels)
        curves = in_order(curves or self.data.labels)
        goes_on = set() if draw else self._taken_over(table)
        styles = lines(curves, self.data.settings.rates)
        columns = columns or (2 if len(panels) == 4 else min(len(panels), 3))
        height, wide = HEIGHTS[min(columns, 3) - 1], len(curves) > FEW
        figure, axes = subplots([panel.name for panel in panels], columns, height, wide=wide)
        # The last panel of a row labels the right axis.
        last = {n // columns: panel.name for n, panel in enumerate(panels) if panel.right}.values()
        alike = dict[str, Axes]()
        for panel, ax in zip(panels, axes, strict=True):
            if panel.alike and ax is not alike.setdefault(panel.alike, ax):
                ax.sharey(alike[panel.alike])
            part = table[table.panel == panel.name]
            if draw:
                draw(ax, panel, part, styles)
            else:
                if panel.right:
                    label = panel.right if panel.name in last else ""
                    draw_rates(ax, panel, part[part.axis == "right"], styles, label)
                draw_panel(ax, panel, part[part.axis != "right"], styles, goes_on)
        if any(panel.right for panel in panels) and (table.axis == "right").any():
            line = Line2D([], [], color="0.3", linestyle=":", linewidth=0.8)
            more = {**more, "learning rate (right axis)": line}
        return self.picture(figure, axes, table, curves=curves, more=more, notes=notes)

    def picture(
        self,
        figure: Figure,
        axes: Iterable[Axes],
        table: pd.DataFrame,
        *,
        curves: Sequence[str] = (),
        more: Mapping[str, Artist] = {},
        notes: Sequence[str] = (),
    ) -> Picture:
        """Add one legend below the panels, unless there is only one curve, and the scale at the top
        right. The legend has each label once, in the order of the curves, then `more`."""
        entries: dict[str, Artist] = {}
        for ax in axes:
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
        ordered = {label: entries[label] for label in curves if label in entries}
        entries = ordered | entries | dict(more)
        if len(entries) > 1:
            columns = _columns([len(label) for label in entries], figure.get_figwidth())
            legend = figure.legend(
                list(entries.values()), list(entries), loc="outside lower center", ncols=columns
            )
            for drawn in filter(None, legend.legend_handles):
                drawn.set_alpha(1)
        figure.suptitle(self._made_at(), x=0.995, ha="right", fontsize=SMALLEST, color="0.35")
        finding = " ".join([*self._notes(), *notes])
        return Picture(figure, table, {"points": len(table), FINDING: finding})

    def _made_at(self) -> str:
        """Return one line on the figure's scale: name, parameters, tokens and seeds."""
        runs = {run: Trajectory(self.data.inputs[run.label]) for run in self.settings.runs}
        sizes = sorted({run.fact("parameters") for run in runs.values()})
        size = " to ".join(dict.fromkeys(map(rounded, (sizes[0], sizes[-1]))))
        small = {run.stands_for for run in runs} - {None}
        kind = f" (miniature{'s' * (len(small) > 1)})" if small else ""
        tokens = max(self._checkpoints(run)[-1].tokens or 0 for run in runs)
        seeds = _counted(len({run.seed for run in runs}), "seed")
        seen = f", {rounded(tokens)} tokens" if tokens else ""
        return f"{self.settings.scale}: {size} parameters{kind}{seen}, {seeds}"

    def _notes(self) -> list[str]:
        """Return notes on miniatures, the tool for GPTQ and calibration sets, and planned notes."""
        quantizers = self.settings.quantizers
        sizes = {
            run.stands_for: rounded(Trajectory(self.data.inputs[run.label]).fact("parameters"))
            for run in self.settings.runs
            if run.stands_for
        }
        several = ", ".join(f"{name} {size}" for name, size in sizes.items())
        notes = [f"Parameters of miniatures: {several}."] if len(sizes) > 1 else []
        # A scale may use other settings than the figure names.
        tools = dict.fromkeys(
            BACKENDS[shown.method] + f" ({shown.draws[0]})" * (shown.draws[0] != shown.name)
            for shown in quantizers
            if shown.method in BACKENDS
        )
        sets = max((len(shown.draws) for shown in quantizers if shown.calibrated), default=0)
        made = [f"GPTQ by {' and '.join(tools)}"] if tools else []
        made += [_counted(sets, "calibration set")] if sets else []
        notes += [f"{', '.join(made)}."] if made else []
        return [*notes, *self.settings.notes]

    def _taken_over(self, table: pd.DataFrame) -> set[str]:
        """Return the names of runs that another run continues; their ends have no outline."""
        along = {panel.name for panel in self.panels if panel.tokens_x}
        places = table[table.panel.isin(along) & (table.axis == "left")].groupby("segment").x
        first, last = places.min(), places.max()
        both = [(n, t) for n, t in self.data.trunks.items() if n in first and t in last]
        return {trunk for name, trunk in both if first[name] >= last[trunk]}


def draw_rates(ax: Axes, panel: Panel, table: pd.DataFrame, styles: Styles, label: str) -> None:
    """Draw learning rates as dotted lines on a right axis of a panel."""
    right = ax.twinx(label=RIGHT.format(panel.name))
    # Hollow, sparse markers of the curves distinguish lines of different rates.
    several = table.groupby("curve").y.max().nunique() > 1
    for (curve, _), part in table.groupby(["curve", "segment"], sort=False):
        line, look = styles[str(curve)], Look(linestyle=":", linewidth=0.8, zorder=1)
        if several:
            look |= {"marker": line.marker, "markersize": 2.8, "markerfacecolor": "white"}
            look |= {"markeredgewidth": 0.5, "markevery": (0.02, 0.4)}
        right.plot(part.x, part.y, color=line.color, **look)
    right.set(ylim=(0, None), ylabel=label)
    right.yaxis.set_major_formatter("{x:g}")
    right.locator_params(nbins=4)
    right.grid(False)
    ax.set_zorder(right.get_zorder() + 1)
    ax.patch.set_visible(False)


def letters(number: int) -> str:
    """Return the name of a panel by its number: a to z, aa to az, ba and so on."""
    before, last = divmod(number, len(ascii_lowercase))
    return (letters(before - 1) if before else "") + ascii_lowercase[last]


def columned(table: pd.DataFrame) -> pd.DataFrame:
    """Return the points of a figure with all `COLUMNS`."""
    unit = table.get("unit", table.y_axis.str.extract(UNIT, expand=False))
    return table.assign(unit=unit).reindex(columns=COLUMNS).astype({"bits": "Int64"})


def subplots(
    names: Sequence[str],
    columns: int,
    height: float,
    *,
    wide: bool = False,
    layout: Literal["constrained", "compressed"] = "constrained",
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its axes, one for each name, in rows of a `height` in inches. One panel
    alone has half of the text width unless `wide`. Layout `compressed` is for fixed aspects."""
    matplotlib.rcdefaults()
    sns.set_theme(style="ticks", rc=SETTINGS)
    cells = [*names, *["."] * (-len(names) % columns)]
    starts = range(0, len(cells), columns)
    rows: list[HashableList[str]] = [[*cells[start : start + columns]] for start in starts]
    width = TEXT if wide or columns > 1 else HALF
    figure = Figure(figsize=(width, len(rows) * height + 0.45))
    axes = figure.subplot_mosaic(rows)
    figure.set_layout_engine(layout, w_pad=0.02, h_pad=0.02, wspace=0.02)
    return figure, [axes[name] for name in names]


def _counted(count: int, what: str) -> str:
    return f"{count}\N{NO-BREAK SPACE}{what}{'' if count == 1 else 's'}"


def _columns(lengths: Sequence[int], width: float) -> int:
    # The most columns with room for all labels; labels fill the columns in turn.
    for columns in range(min(MOST, len(lengths)), 1, -1):
        filled = np.array_split(lengths, columns)
        if sum(ENTRY + LETTER * max(column) for column in filled) <= width:
            return columns
    return 1
