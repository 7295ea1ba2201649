"""Errors against the loss in full precision and against the learning rate."""

from typing import TYPE_CHECKING, Literal

import numpy as np

from ptq_dynamics.figures.layout import BEFORE, Layout, Reads, Some

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet

AXES = {"loss": BEFORE, "rate": "Learning rate"}
CALLED = {"loss": "the loss in full precision", "rate": "the learning rate"}
LEAST = 5  # points for a correlation


class Onset(Layout):
    """Panels of the error under every quantizer against tokens, loss and learning rate."""

    layout: Literal["onset"]
    quantizers: Some[str]
    metrics: tuple[Literal["quantization_error"], Literal["loss"]]

    @property
    def reads(self) -> Reads:
        """Learning rates."""
        return Reads(of_runs=("the learning rate",))

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure; a note has the shares of variance from `described`."""
        data, (error, _), shares_of = sheet.data, self.metrics, list[str]()
        for quantizer in data.quantizers:
            sheet.add(data.run_panel(error, quantizer), data.points(error, quantizer))
            loss = data.against_loss(error, quantizer)
            rate = data.along(data.select(error, quantizer), "lr")
            for (axis, label), part in zip(AXES.items(), (loss, rate), strict=True):
                sheet.add(data.panel(error, quantizer, label, f"{{}} vs. {axis}"), part)
            shares = described(loss.x.to_numpy(), rate.x.to_numpy(), loss.y.to_numpy())
            if shares is not None:
                better, other = sorted(AXES, key=lambda axis: -shares[axis])
                shares_of.append(
                    f"{CALLED[better]} describes the {data.called[quantizer]} error better than "
                    f"{CALLED[other]} (r² {shares[better]:.2f} against {shares[other]:.2f})"
                )
        notes = [f"On a straight line, {'; '.join(shares_of)}."] if shares_of else []
        return sheet.publish(columns=1 + len(AXES), notes=notes)


def described(loss: np.ndarray, rate: np.ndarray, error: np.ndarray) -> dict[str, float] | None:
    """Return squared correlations of the error [n] with loss and rate, or None."""
    if len(error) < LEAST or not (np.ptp(loss) and np.ptp(rate) and np.ptp(error)):
        return None
    shares = np.corrcoef([loss, rate, error])[2, :2] ** 2
    return dict(zip(AXES, shares.tolist(), strict=True))
