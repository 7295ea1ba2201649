"""Panels of figures. The table of a figure, its CSV file, has a row for each drawn point."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from string import ascii_lowercase
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.typing import HashableList

from ptq_dynamics.figures.axes import draw_panel, is_leftmost, name_ends
from ptq_dynamics.figures.curves import ABOUT, OF_RUNS, Curves
from ptq_dynamics.figures.labels import (
    FINDING,
    QUANTITIES,
    QUANTITY,
    Panel,
    names_in_groups,
    rounded,
)
from ptq_dynamics.figures.places import STRIP
from ptq_dynamics.figures.rates import draw_strips, strips
from ptq_dynamics.figures.style import HALF, SMALLEST, TEXT, Styles, lines, set_style, sorted_labels
from ptq_dynamics.measure.names import BACKENDS
from ptq_dynamics.trajectories.trajectory import Trajectory

# Columns of the tables of all figures; docs/results.md describes them.
PLACE = ["x", "y", "unit", "low", "high", "segment", "axis", "x_axis", "y_axis"]
COLUMNS = ["panel", "curve", *ABOUT, *PLACE, "loss", "increase"]
UNIT = r"\((%|nats\S*)\)$"  # at the end of an axis's label
HEIGHTS = (2.47, 1.8, 1.55)  # inches of rows with one, two, and more panels
LARGE = 1.4  # height of the first panel, if it is large, per height of the others
STRIP_HEIGHT, LINE_HEIGHT = 0.33, 0.18  # inches of a strip, and of a line of the legend
LETTERS = (70, 30, 19)  # of a line in a panel, in rows with one, two, and more panels
FEW = 5  # curves, for the legend of which half a text column has room
SHORT = 12  # letters of a name of a curve that stands beside its end
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
        set_style()
        self.data, self.settings = data, data.settings
        # Numbers of parameters by run.
        self.sizes = {
            run: Trajectory(data.inputs[run.label]).fact("parameters") for run in data.settings.runs
        }
        self.panels: list[Panel] = []
        self._parts: list[pd.DataFrame] = []

    def add(self, panel: Panel, *parts: pd.DataFrame) -> None:
        """Add a panel with its points."""
        name = letters(len(self.panels))
        self.panels.append(replace(panel, name=name, title=f"({name}) {panel.title}"))
        place = {"panel": name, "x_axis": panel.x, "y_axis": panel.y}
        for part in parts:
            self._parts.append(part.assign(**place))
            if panel.y.endswith("(%)"):
                self._parts[-1][["y", "low", "high"]] *= 100

    def publish(
        self,
        curves: Sequence[str] = (),
        columns: int | None = None,
        *,
        notes: Sequence[str] = (),
        draw: Draw | None = None,
        height: float | None = None,
        wide: bool = False,
        is_first_large: bool = False,
        more: Mapping[str, Artist | None] = {},
    ) -> Picture:
        """Draw all panels in `columns`, by default up to three, in rows of a `height` in inches.
        One legend below has the `curves`, by default those of the data, and `more`. `draw` replaces
        the function that draws a panel. If `is_first_large`, the others are below the first.
        Facts: the number of points, and sentences below the caption, at last `notes`."""
        data, panels = self.data, self.panels
        own = names_in_groups(data.labels) if self.settings.grouped else data.labels
        curves = sorted_labels(curves or own)
        styles = lines(curves, self.settings.rates)
        columns = columns or (2 if len(panels) == 4 else min(len(panels), 3))
        columns = len(panels) - 1 if is_first_large else columns
        for n, panel in enumerate(panels):
            most = LETTERS[0 if is_first_large and n == 0 else min(columns, 3) - 1]
            panels[n] = replace(panel, is_lowest=n + columns >= len(panels), letters=most)
        table = pd.concat(self._parts)
        below, rates = strips(data, panels, columns, table)
        table = pd.concat([table, *rates])
        unit = table.get("unit", table.y_axis.str.extract(UNIT, expand=False))
        table = (
            table.assign(unit=unit).reindex(columns=[*COLUMNS, OF_RUNS]).astype({"bits": "Int64"})
        )
        draw_one = draw or partial(draw_panel, goes_on=self._taken_over(table))
        is_low = columns == 1 < len(panels) or len(panels) > 2 * columns
        height = height or HEIGHTS[-1 if is_low else min(columns, 3) - 1]
        more = {**more, **self._spread(table), **dict.fromkeys(self._words())}
        names, wide = [panel.name for panel in panels], wide or len(curves) > FEW
        lowest = [name for name, lower in below.items() if lower is None]
        figure, axes = subplots(names, columns, height, lowest, wide=wide, large=is_first_large)
        figure.set_figheight(figure.get_figheight() + LINE_HEIGHT * bool(more))
        alike = dict[str, Axes]()
        for n, panel in enumerate(panels):
            ax, part = axes[panel.name], table[(table.panel == panel.name) & (table.axis != "rate")]
            if panel.alike and ax is not alike.setdefault(panel.alike, ax):
                ax.sharey(alike[panel.alike])
            draw_one(ax, panel, part, styles)
            if panel.alike and not is_leftmost(ax) and panel.alike == panels[n - 1].alike:
                ax.set_ylabel("")
                ax.tick_params(axis="y", labelleft=False)
        draw_strips(axes, below, table, styles)
        beside = [p for n, p in enumerate(panels) if p.name in below and (n + 1) % columns == 0]
        is_named = beside and not draw and max(map(len, curves)) <= SHORT
        for panel in beside if is_named else []:
            part = table[(table.panel == panel.name) & (table.axis == "left")]
            part = part[part.y.notna()].sort_values("x", kind="stable")
            ends = part.groupby("curve", sort=False).y.last()
            name_ends(axes[panel.name], {str(k): y for k, y in ends.items()}, styles, height)
            curves = [curve for curve in curves if curve not in ends]
        self._add_legend(figure, [] if is_named and not curves else axes.values(), curves, more)
        made = self._made_at()
        weight = "bold" if ", miniature" in made else "normal"
        figure.suptitle(made, x=0.995, ha="right", fontsize=SMALLEST, color="0.3", weight=weight)
        finding = " ".join([*self._notes(), *notes])
        return Picture(figure, table[COLUMNS], {"points": len(table), FINDING: finding})

    @staticmethod
    def _add_legend(
        figure: Figure,
        axes: Iterable[Axes],
        curves: Sequence[str],
        more: Mapping[str, Artist | None],
    ) -> None:
        """Add one legend below the panels, unless there is only one curve. It has each label once,
        in the order of the curves, then `more`."""
        drawn = dict[str, Artist]()
        for ax in axes:
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                drawn.setdefault(label, handle)
        ordered = {label: drawn[label] for label in curves if label in drawn}
        entries = {**ordered, **drawn, **more}
        if len(entries) > 1 or more:
            handles = [entry or Line2D([], [], linestyle="none") for entry in entries.values()]
            columns = _columns([*map(len, entries)], figure.get_figwidth())
            figure.legend(handles, [*entries], loc="outside lower center", ncols=columns)

    def _spread(self, table: pd.DataFrame) -> dict[str, Artist]:
        """Return what bars or bands of the drawn points mean, with a symbol for the legend."""
        spread = table[table.low.notna()]
        if spread.empty:
            return {}
        several = {*(spread.seeds.astype(str).str.contains(" ") | spread[OF_RUNS].eq(True))}
        words = ["deviation"] * (True in several) + ["error"] * (False in several)
        forms = [panel.form for panel in self.panels if panel.name in {*spread.panel}]
        symbol: Artist = Patch(color="0.85")
        if marker := {"bars": "|", "rows": "_"}.get(forms[0]):
            symbol = Line2D([], [], color="0.3", marker=marker, markersize=7, linestyle="none")
        return {f"± 1 standard {' or '.join(words)}": symbol}

    def _words(self) -> list[str]:
        """Return what quantities in labels are, and the curves that the scale lacks."""
        labels, factor = " ".join(self.data.labels), self.settings.rate_factor
        words = [QUANTITIES[name] for name in QUANTITY.findall(labels) if name in QUANTITIES]
        words += [f"LR of the paper; here × {factor:g}"] if factor else []
        return words + [f"{name}: left out" for name in names_in_groups(self.settings.absent)]

    def _made_at(self) -> str:
        """Return one line on the figure's scale: name, parameters, tokens and seeds."""
        runs, sizes = self.settings.runs, self.sizes.values()
        size = " to ".join(dict.fromkeys(map(rounded, (min(sizes), max(sizes)))))
        small = {run.stands_for for run in runs} - {None}
        kind = f", miniature{'s' * (len(small) > 1)}" if small else ""
        tokens = max(self.data.checkpoints(run)[-1].tokens or 0 for run in runs)
        seeds = _counted(len({run.seed for run in runs}), "seed")
        seen = f", {rounded(tokens)} tokens" if tokens else ""
        return f"{self.settings.scale}{kind}: {size} parameters{seen}, {seeds}"

    def _notes(self) -> list[str]:
        """Return notes on miniatures, the tool for GPTQ and calibration sets, and planned notes."""
        quantizers = self.settings.quantizers
        sizes = {run.stands_for: size for run, size in self.sizes.items() if run.stands_for}
        several = ", ".join(f"{name} {rounded(size)}" for name, size in sizes.items())
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
        if of := ", ".join(self.settings.uncertain_rates):
            notes.append(f"The learning rate of {of} is uncertain.")
        return [*notes, *self.settings.notes]

    def _taken_over(self, table: pd.DataFrame) -> set[str]:
        """Return the names of runs that another run continues; their ends have no outline."""
        along = {panel.name for panel in self.panels if panel.tokens_x}
        places = table[table.panel.isin(along) & (table.axis == "left")].groupby("segment").x
        first, last = places.min(), places.max()
        both = [(n, t) for n, t in self.data.trunks.items() if n in first and t in last]
        return {trunk for name, trunk in both if first[name] >= last[trunk]}


def letters(number: int) -> str:
    """Return the name of a panel by its number: a to z, aa to az, ba and so on."""
    before, last = divmod(number, len(ascii_lowercase))
    return (letters(before - 1) if before else "") + ascii_lowercase[last]


def subplots(
    names: Sequence[str],
    columns: int,
    height: float,
    strips: Collection[str] = (),
    *,
    wide: bool = False,
    large: bool = False,
) -> tuple[Figure, dict[str, Axes]]:
    """Return a figure and its axes by name, in rows of a `height` in inches. Rows with panels in
    `strips` also have axes for the learning rate. One panel alone has half of the text width unless
    `wide`. The first panel may be `large`, beside the others."""
    cells = [*names, *["."] * (-len(names) % columns)]
    heights, rows = list[float](), list[HashableList[str]]()
    parts = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    for row in [[names[0]] * columns, [*names[1:]]] if large else parts:
        rows.append([*row])
        heights.append(height * LARGE if large and not rows[1:] else height)
        if {*strips} & {*row}:
            rows.append([STRIP.format(name) if name in strips else name for name in row])
            heights.append(STRIP_HEIGHT)
    width = TEXT if wide or columns > 1 else HALF
    figure = Figure(figsize=(width, sum(heights) + 0.45))
    axes = figure.subplot_mosaic(rows, height_ratios=heights)
    figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02, wspace=0.02)
    return figure, axes


def _counted(count: int, what: str) -> str:
    return f"{count}\N{NO-BREAK SPACE}{what}{'' if count == 1 else 's'}"


def _columns(lengths: Sequence[int], width: float) -> int:
    # The most columns with room for all labels; labels fill the columns in turn.
    for columns in range(min(MOST, len(lengths)), 1, -1):
        filled = np.array_split(lengths, columns)
        if sum(ENTRY + LETTER * max(column) for column in filled) <= width:
            return columns
    return 1
