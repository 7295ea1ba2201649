"""What the error follows: the loss in full precision, or the learning rate."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ptq_dynamics.figures.layout import BEFORE, Measured, Some
from ptq_dynamics.measure.names import ErrorThenLoss

AXES = {"loss": BEFORE, "rate": "Learning rate"}
CALLED = {"loss": "the loss in full precision", "rate": "the learning rate"}
RESAMPLES = 2000
LEAST = 5  # points of a correlation


class Onset(Measured):
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


def described(loss: np.ndarray, rate: np.ndarray, error: np.ndarray) -> dict[str, Any] | None:
    """Squared correlations of the error [n] with loss and rate [n], each with its 95 % interval
    from resampled points; and the share of resamples in which the larger one is the larger. None of
    too few points."""
    table = np.array([loss, rate, error])
    count = table.shape[1]
    if count < LEAST:
        return None
    draws = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    found, whole = np.array([_squared(table[:, draw]) for draw in draws]), _squared(table)
    ends = np.nanquantile(found, [0.025, 0.975], axis=0)
    shares = {axis: (float(whole[n]), *map(float, ends[:, n])) for n, axis in enumerate(AXES)}
    better = int(np.argmax(whole))
    return {**shares, "certain": float(np.nanmean(found[:, better] > found[:, 1 - better]))}


def _squared(table: np.ndarray) -> np.ndarray:
    """Squared correlations of the last row of [3, n] with the first two; 0 where a row varies
    not."""
    centred = table - table.mean(axis=1, keepdims=True)
    scale = np.sqrt((centred**2).sum(axis=1))
    products = (centred[:2] * centred[2]).sum(axis=1)
    norms = scale[:2] * scale[2]
    return np.square(np.divide(products, norms, out=np.zeros(2), where=norms > 0))


def _told(called: str, shares: Mapping[str, Any]) -> str:
    """What `described` gives, in words."""
    ranked = sorted(AXES, key=lambda axis: -shares[axis][0])
    better, other = (CALLED[axis] for axis in ranked)
    each = ["{:.2f} [{:.2f}, {:.2f}]".format(*shares[axis]) for axis in ranked]
    certain = f"in {100 * shares['certain']:.0f} % of resamples"
    return (
        f"{better} describes the {called} error better than {other} "
        f"(r² {' against '.join(each)}, {certain})"
    )
