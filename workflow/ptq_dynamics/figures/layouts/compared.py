"""One value of each curve: at the end of its runs, or at equal loss."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Literal

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.labels import Panel, in_group
from ptq_dynamics.figures.layout import Evaluations, Layout
from ptq_dynamics.measure.names import LOSS, STEP, TRAJECTORY, VALUE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ptq_dynamics.figures.curves import Curves
    from ptq_dynamics.figures.panels import Picture, Sheet
    from ptq_dynamics.figures.style import Look, Styles

NUMBERS = ["x", "low", "high"]
LATE = 2 / 3  # constant runs are averaged from this share of their steps on


class ComparedOptions(Strict):
    """`rows` of panels are curves, groups of curves, or quantizers. `words` may name quantizers. At
    `equal_loss`, errors are those where the loss of a run passes the highest final loss."""

    rows: Literal["curves", "groups", "quantizers"] = "curves"
    words: dict[str, str] = {}
    equal_loss: bool = False
    relative: bool = False  # to the first curve of a row
    log: bool = False


class Compared(Layout):
    """A panel for every metric and quantizer, or one for all quantizers as rows. A constant run
    counts with the mean of its last third, other trajectories with their last checkpoint."""

    grouped = True
    layout: Literal["compared"]
    metrics: Evaluations
    options: ComparedOptions = ComparedOptions()

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        import pandas as pd

        data, options = sheet.data, self.options
        panels = dict[tuple[str, str | None], list[pd.DataFrame]]()
        for metric, quantizer in data.wanted():
            table = _values(data, metric, quantizer, is_equal=options.equal_loss)
            group, name = zip(*map(in_group, table.curve), strict=True)
            row = [*(group if options.rows == "groups" else table.curve)]
            by_quantizer = options.rows == "quantizers" and quantizer is not None
            if by_quantizer:
                row = [options.words.get(str(quantizer), data.called[str(quantizer)])] * len(table)
            parts = panels.setdefault((metric, None if by_quantizer else quantizer), [])
            parts.append(table.assign(segment=row, curve=name))
        for (metric, quantizer), parts in panels.items():
            table = pd.concat(parts, ignore_index=True)
            shown = next((q for q in (quantizer, *data.quantizers) if q), None)
            words = data.panel(metric, None if metric == LOSS else shown, "")
            x, is_log = words.y, options.log and metric != LOSS
            if options.relative:
                x = f"Error / error of {table.curve[0]}"
                first = table.groupby("segment").x.transform("first")
                table[NUMBERS] = table[NUMBERS].div(first, axis=0)
            elif x.endswith("(%)"):
                table[NUMBERS] *= 100
            table = table.assign(y=pd.factorize(table.segment)[0])
            title = words.title if quantizer or metric == LOSS else "Quantization error"
            title += ", equal loss" if options.equal_loss and metric != LOSS else ""
            sheet.add(Panel(title, x, "", log_x=is_log), table)
        return sheet.publish(draw=_draw_panel, wide=len(panels) == 1)


def _values(
    data: "Curves", metric: str, quantizer: str | None, *, is_equal: bool
) -> "pd.DataFrame":
    """Return a value `x` of each curve, with its ends `low` and `high`."""
    import pandas as pd

    from ptq_dynamics.figures.curves import POINT, band
    from ptq_dynamics.figures.layouts.flatness import values_at_equal_loss

    before = data.rows(LOSS, None).set_index(POINT)[VALUE].rename(LOSS)
    table = data.rows(metric, quantizer).sort_values(STEP, kind="stable").join(before, on=POINT)
    goes_on = {(curve, data.trunks.get(name)) for curve, name in data.members.to_numpy()}
    own = [(curve, name) not in goes_on for curve, name in data.members.to_numpy()]
    table = data.members[own].merge(table, on=TRAJECTORY)
    place = {"segment": table.trajectory, "axis": "left", "x": 0.0, LOSS: table[LOSS]}
    points = pd.DataFrame({"curve": table.curve, **place, **band(table)})
    points = points.assign(stage=table.phase, step=table.step)
    if is_equal and metric != LOSS:
        points = values_at_equal_loss(points)
    else:
        runs = {run.name for run in data.settings.runs}
        constant = (points.stage == "stable") & points.segment.isin(runs) & (not is_equal)
        last = points.groupby(["segment", "seeds"], dropna=False).step.transform("max")
        ends = constant[points.step == last].groupby(points.segment).any()
        late = points.segment.map(ends) & (points.step >= LATE * last)
        points = points[late | (points.step == last)]
    rows = list[dict[Hashable, object]]()
    for _, part in points.groupby("curve", sort=False):
        values = part.groupby("seeds", dropna=False).y.mean()
        error = values.std() if len(values) > 1 else (part.high - part.y).mean()
        x = values.mean()
        about = part.iloc[0].to_dict() | {"x": x, "low": x - error, "high": x + error}
        for column in ("trajectory", "checkpoint_id", "seeds"):
            about[column] = " ".join(dict.fromkeys(part[column].astype(str)))
        rows.append(about)
    return pd.DataFrame(rows)


def _draw_panel(ax: "Axes", panel: Panel, table: "pd.DataFrame", styles: "Styles") -> None:
    from ptq_dynamics.figures.axes import plain_log_ticks

    labels = table.drop_duplicates("segment")
    several = table.segment.duplicated().any()
    if several:
        spans = table.groupby("y").x.agg(["min", "max"])
        ax.hlines(spans.index, spans["min"], spans["max"], color="0.75", linewidth=2, zorder=1)
    for curve, part in table.groupby("curve", sort=False):
        line = styles[str(curve)]
        look: Look = {"color": "0.2", "marker": "o", "markersize": 4.5, "elinewidth": 1.0}
        look |= {"color": line.color, "marker": line.marker} if several else {}
        spread = [part.x - part.low, part.high - part.x]
        label = str(curve) if several else None
        ax.errorbar(part.x, part.y, xerr=spread, label=label, linestyle="none", **look)
    ax.set(title=panel.title, xlabel=panel.x, ylim=(len(labels) - 0.5, -0.5))
    ax.set_yticks(labels.y, labels.segment)
    ax.tick_params(axis="y", length=0, labelleft=panel.name == "a")
    ax.grid(visible=False, axis="y")
    if not panel.log_x:
        ax.locator_params(axis="x", nbins=4)
    else:
        ax.set_xscale("log")
        plain_log_ticks(ax.xaxis)
