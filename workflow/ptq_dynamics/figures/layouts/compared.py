"""One value of each curve: at the end of its runs, or at equal loss."""

from typing import TYPE_CHECKING, Literal

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.labels import Panel, in_group
from ptq_dynamics.figures.layout import Layout, Some
from ptq_dynamics.measure.names import LOSS, ErrorOrCurvature, Evaluated

if TYPE_CHECKING:
    import pandas as pd

    from ptq_dynamics.figures.curves import Curves
    from ptq_dynamics.figures.panels import Picture, Sheet

NUMBERS = ["x", "low", "high"]
LATE = 2 / 3  # constant runs are averaged from this share of their steps on


class ComparedOptions(Strict):
    """`rows` of panels are curves, groups of curves, or quantizers. `words` may name quantizers. At
    `equal_loss`, errors are those where the loss of a run passes the highest final loss."""

    rows: Literal["curves", "groups", "quantizers"] = "curves"
    words: dict[str, str] = {}
    equal_loss: bool = False
    relative: bool = False  # to the first curve of a row


class Compared(Layout):
    """A panel for every metric and quantizer, or one for all quantizers as rows. A constant run
    counts with the mean of its last third, other trajectories with their last checkpoint."""

    grouped = True
    layout: Literal["compared"]
    metrics: Some[Literal[Evaluated, ErrorOrCurvature]]
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
            words = data.panel(metric, None if metric in data.full else shown, "")
            x = words.y
            if options.relative:
                x = f"Error / error of {table.curve[0]}"
                first = table.groupby("segment").x.transform("first")
                table[NUMBERS] = table[NUMBERS].div(first, axis=0)
            elif x.endswith("(%)"):
                table[NUMBERS] *= 100
            table = table.assign(y=pd.factorize(table.segment)[0])
            title = words.title if quantizer or metric in data.full else "Quantization error"
            title += ", equal loss" if options.equal_loss and metric != LOSS else ""
            sheet.add(Panel(title, x, "", form="rows"), table)
        meant = ["equal loss: highest final loss of these runs"] * options.equal_loss
        return sheet.publish(
            wide=len(panels) == 1, is_first_large=len(panels) > 3, more=dict.fromkeys(meant)
        )


def _values(
    data: "Curves", metric: str, quantizer: str | None, *, is_equal: bool
) -> "pd.DataFrame":
    """Return a value `x` of each curve, with its ends `low` and `high`."""
    from ptq_dynamics.figures.curves import over_runs, placed
    from ptq_dynamics.figures.layouts.flatness import values_at_equal_loss

    table = data.with_loss(metric, quantizer)
    goes_on = {(curve, data.trunks.get(name)) for curve, name in data.members.to_numpy()}
    pairs = zip(table.curve, table.trajectory, strict=True)
    table = table[[pair not in goes_on for pair in pairs]]
    # Merges of ends have one checkpoint, without a step.
    about = {"stage": table.phase, "step": table.step.astype(float).fillna(0)}
    points = placed(table, 0.0, table.curve, loss=table[LOSS], **about)
    if is_equal and metric != LOSS:
        points = values_at_equal_loss(points)
    else:
        runs = {run.name for run in data.settings.runs}
        constant = (points.stage == "stable") & points.segment.isin(runs) & (not is_equal)
        last = points.groupby(["segment", "seeds"], dropna=False).step.transform("max")
        ends = constant[points.step == last].groupby(points.segment).any()
        late = points.segment.map(ends) & (points.step >= LATE * last)
        points = points[late | (points.step == last)]
    means = over_runs(over_runs(points, "curve", "seeds"), "curve", spread=True)
    return means.assign(x=means.y)
