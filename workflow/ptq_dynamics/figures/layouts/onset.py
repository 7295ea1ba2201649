"""What the error follows: the loss in full precision, or the learning rate."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ptq_dynamics.figures.layout import BEFORE, Layout, Some
from ptq_dynamics.measure.names import ErrorThenLoss

AXES = {"loss": BEFORE, "rate": "Learning rate"}
CALLED = {"loss": "the loss in full precision", "rate": "the learning rate"}
LEAST = 5  # points of a correlation


class Onset(Layout):
    """The error under every quantizer against tokens, against the loss in full precision, and
    against the learning rate, with how much of its variance each of the latter two describes."""

    layout: Literal["onset"]
    quantizers: Some[str]
    metrics: ErrorThenLoss

    def check(self, place: str, timeline: Any) -> None:
        """Averages have no learning rate."""
        self.no_averages(place, timeline, "the learning rate")

    def draw(self, sheet: Any) -> Any:
        """Draw the figure. Facts: for every quantizer, what `described` gives; and what these say,
        in a sentence."""
        data, error = sheet.data, self.metrics[0]
        said, facts = list[str](), dict[str, Any]()
        for quantizer in data.quantizers:
            points = data.points(error, quantizer)
            sheet.add(data.over_tokens(error, quantizer), points)
            loss = data.against_loss(error, quantizer)
            rate = data.along(data.select(error, quantizer), "lr")
            for (axis, label), part in zip(AXES.items(), (loss, rate), strict=True):
                sheet.add(data.panel(error, quantizer, label, f"{{}} vs. {axis}"), part)
            shares = described(loss.x.to_numpy(), rate.x.to_numpy(), loss.y.to_numpy())
            if shares is not None:
                facts[quantizer] = shares
                said.append(_told(data.called[quantizer], shares))
        said = [f"On a straight line, {'; '.join(said)}."] if said else []
        picture = sheet.publish(columns=1 + len(AXES), said=said)
        return picture._replace(facts=picture.facts | facts)


def described(loss: np.ndarray, rate: np.ndarray, error: np.ndarray) -> dict[str, float] | None:
    """Squared correlations of the error [n] with loss and rate [n]; None of too few points."""
    if len(error) < LEAST or not (np.ptp(loss) and np.ptp(rate) and np.ptp(error)):
        return None
    found = np.corrcoef([loss, rate, error])[2, :2] ** 2
    return dict(zip(AXES, found.tolist(), strict=True))


def _told(called: str, shares: Mapping[str, float]) -> str:
    """What `described` gives, in words."""
    better, other = sorted(AXES, key=lambda axis: -shares[axis])
    return (
        f"{CALLED[better]} describes the {called} error better than {CALLED[other]} "
        f"(r² {shares[better]:.2f} against {shares[other]:.2f})"
    )
