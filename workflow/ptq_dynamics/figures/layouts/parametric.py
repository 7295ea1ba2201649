"""Metrics of quantized weights against tokens, the loss in full precision and the learning rate."""

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import model_validator

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.layout import BEFORE, Evaluations, Layout, Reads, Some
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR

if TYPE_CHECKING:
    from ptq_dynamics.figures.curves import Curves
    from ptq_dynamics.figures.panels import Picture, Sheet

CALLED = {"loss": "the loss in full precision", "rate": "the learning rate"}
LEAST = 5  # points for a correlation
# Panels of several curves against the loss have these shares of points, and a margin.
SHOWN, SHOWN_OF_LOSSES, BEYOND = 0.6, 0.25, 0.05


class ParametricOptions(Strict):
    """The horizontal axes; losses have panels against losses only. A note says which of loss and
    rate describes the error better."""

    against: Some[Literal["tokens", "loss", "rate"]] = ("tokens", "loss")


class Parametric(Layout):
    """A panel for every quantizer, horizontal axis, metric and group of curves."""

    grouped = True
    layout: Literal["parametric"]
    quantizers: Some[str]
    metrics: Evaluations
    options: ParametricOptions = ParametricOptions()

    @model_validator(mode="after")
    def _has_panels(self) -> Self:
        if {*self.metrics} == {LOSS} and "loss" not in self.options.against:
            raise ValueError("options.against lacks loss, but metrics has loss alone; add one")
        return self

    @property
    def reads(self) -> Reads:
        """Learning rates, if they are an axis."""
        return Reads(of_runs=("the learning rate",) * ("rate" in self.options.against))

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        data, groups, axes = sheet.data, sheet.data.groups, self.options.against
        views = [(x, m) for x, m in product(axes, self.metrics) if x == "loss" or m != LOSS]
        for quantizer, (x, metric), group in product(data.quantizers, views, groups):
            title = f"{group}\n{{}}".lstrip()
            if x == "tokens":
                points = data.points(metric, quantizer)
                panel = data.run_panel(metric, quantizer, title)
            elif x == "rate":
                points = data.along(data.select(metric, quantizer), "lr")
                panel = data.panel(metric, quantizer, "Learning rate", f"{title} vs. rate")
            else:
                points = data.over_branches(data.against_loss(metric, quantizer))
            points = points.assign(curve=points.curve.map(groups[group])).dropna(subset="curve")
            if x == "loss":
                words = "FP to {}" if metric == LOSS else "{} vs. loss"
                title = title.replace("{}", words) if len(axes) > 1 else title
                panel = data.panel(metric, quantizer, BEFORE, title)
                panel = replace(panel, diagonal=metric == LOSS)
                if len(groups[group]) > 1:
                    shown = points.x.quantile(SHOWN_OF_LOSSES if metric == LOSS else SHOWN)
                    curves = points.groupby("curve").x
                    last = max(shown, curves.min().max(), curves.last().max())
                    zoom = float(last + BEYOND * (last - points.x.min()))
                    panel = replace(panel, zoom=zoom, form="thin")
            sheet.add(panel, points)
        columns = len(groups) if len(groups) > 1 else len(views)
        notes = [_described(data)] if {*CALLED} <= {*axes} else []
        return sheet.publish(columns=columns if columns <= 3 else None, notes=notes)


def _described(data: "Curves") -> str:
    """Return a sentence on the better description of the errors, if there are any."""
    texts = list[str]()
    for quantizer, called in data.called.items():
        loss = data.against_loss(QUANTIZATION_ERROR, quantizer)
        rate = data.along(data.select(QUANTIZATION_ERROR, quantizer), "lr")
        shares = described(loss.x.to_numpy(), rate.x.to_numpy(), loss.y.to_numpy())
        if shares is not None:
            better, other = sorted(CALLED, key=lambda axis: -shares[axis])
            texts.append(
                f"{CALLED[better]} describes the {called} error better than "
                f"{CALLED[other]} (r² {shares[better]:.2f} against {shares[other]:.2f})"
            )
    return f"On a straight line, {'; '.join(texts)}." if texts else ""


def described(loss: np.ndarray, rate: np.ndarray, error: np.ndarray) -> dict[str, float] | None:
    """Return squared correlations of the error [n] with loss and rate, or None."""
    if len(error) < LEAST or not (np.ptp(loss) and np.ptp(rate) and np.ptp(error)):
        return None
    shares = np.corrcoef([loss, rate, error])[2, :2] ** 2
    return dict(zip(CALLED, shares.tolist(), strict=True))
