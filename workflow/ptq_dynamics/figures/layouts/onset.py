"""What the error follows: the loss in full precision, or the learning rate."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.panels import publish
from ptq_dynamics.figures.settings import FINDING, FigureSettings
from ptq_dynamics.figures.words import letters

AXES = {"loss": "FP loss (nats/token)", "rate": "Learning rate"}
CALLED = {"loss": "the loss in full precision", "rate": "the learning rate"}
RESAMPLES = 2000
LEAST = 5  # points of a correlation


def run(context: Context[FigureSettings]) -> Mapping[str, Any]:
    """Stage: draw the figure, the error under every quantizer against tokens, against the loss in
    full precision and against the learning rate. Facts: the share of the error's variance that each
    of the two describes, with 95 % intervals from resampled points, and the chance that the order
    of the two is that of the shares; and what they say, in a sentence."""
    curves = Curves(context)
    error, _ = context.settings.metrics
    names = letters()
    panels, parts, said, found = [], [], [], list[str]()
    facts: dict[str, Any] = {}
    for quantizer in curves.quantizers:
        letter = next(names)
        panels.append(curves.over_tokens(letter, error, quantizer))
        parts.append(curves.points(letter, error, quantizer))
        parts.append(curves.learning_rates(letter))
        against: dict[str, pd.DataFrame] = {}
        for axis, label in AXES.items():
            letter = next(names)
            panel = curves.panel(letter, error, quantizer, label)
            panels.append(replace(panel, title=f"{panel.title} vs. {axis}"))
            draw = curves.against_loss if axis == "loss" else curves.against_rate
            against[axis] = draw(letter, error, quantizer)
            parts.append(against[axis])
        loss, rate = against["loss"], against["rate"]
        shares = described(loss.x.to_numpy(), rate.x.to_numpy(), loss.y.to_numpy())
        if shares is not None:
            facts[quantizer] = shares
            said.append(_told(curves.called[quantizer], shares))
            found.append(_better(curves.called[quantizer], shares))
    if found:
        facts[FINDING] = f"On a straight line, {'; '.join(found)}."
    return publish(context, panels, parts, curves.labels, columns=1 + len(AXES), said=said) | facts


def described(
    loss: np.ndarray, rate: np.ndarray, error: np.ndarray
) -> dict[str, tuple[float, float, float] | float] | None:
    """Squared correlations of the error [n] with loss and rate [n], each with its 95 % interval
    from resampled points; and the share of resamples in which the larger one is the larger. None of
    too few points."""
    table = np.array([loss, rate, error])
    if table.shape[1] < LEAST:
        return None
    rng = np.random.default_rng(0)
    draws = rng.integers(table.shape[1], size=(RESAMPLES, table.shape[1]))
    found = np.array([_squared(table[:, draw]) for draw in draws])
    whole = _squared(table)
    low, high = np.nanquantile(found, [0.025, 0.975], axis=0)
    better = int(np.argmax(whole))
    shares: dict[str, tuple[float, float, float] | float] = {
        axis: (float(whole[n]), float(low[n]), float(high[n])) for n, axis in enumerate(AXES)
    }
    return shares | {"certain": float(np.nanmean(found[:, better] > found[:, 1 - better]))}


def _squared(table: np.ndarray) -> np.ndarray:
    """Squared correlations of the last row of [3, n] with the first two; 0 where a row varies
    not."""
    centred = table - table.mean(axis=1, keepdims=True)
    scale = np.sqrt((centred**2).sum(axis=1))
    products = (centred[:2] * centred[2]).sum(axis=1)
    norms = scale[:2] * scale[2]
    return np.square(np.divide(products, norms, out=np.zeros(2), where=norms > 0))


def _better(called: str, shares: Mapping[str, Any]) -> str:
    better, other = sorted(AXES, key=lambda axis: -shares[axis][0])
    return (
        f"{CALLED[better]} describes the {called} error better than {CALLED[other]} "
        f"(r² {shares[better][0]:.2f} against {shares[other][0]:.2f}, in "
        f"{100 * shares['certain']:.0f} % of resamples)"
    )


def _told(called: str, shares: Mapping[str, Any]) -> str:
    words = []
    for axis in AXES:
        value, low, high = shares[axis]
        words.append(f"{CALLED[axis]} {value:.2f} [{low:.2f}, {high:.2f}]")
    better = max(AXES, key=lambda axis: shares[axis][0])
    return (
        f"of the variance of the {called} error, {' and '.join(words)} (r², squared correlation); "
        f"{CALLED[better]} describes it better in {100 * shares['certain']:.0f} % of resamples"
    )
