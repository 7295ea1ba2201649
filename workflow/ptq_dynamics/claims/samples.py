"""Samples: the numbers that claims read, with bootstrap replicates.

A sample is float64 [replicates]; its first entry is the measured number. `bootstrap` resamples text
and calibration sets; this module resamples seeds and the checkpoints of a phase. Numbers from one
or two checkpoints get the rounding noise of these instead."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, floor, nan

import numpy as np
import pandas as pd

from ptq_dynamics.base import needs
from ptq_dynamics.claims.bootstrap import REPLICATES, Bootstrap, NotMeasured, random, weights
from ptq_dynamics.figures import law
from ptq_dynamics.measure.names import FULL_PRECISION, LOSS, QUANTIZATION_ERROR
from ptq_dynamics.train.settings import TRAINING

Sample = np.ndarray
NOTHING = np.full(REPLICATES, np.nan)
PIECES = 8  # means of neighbouring records of a training curve, which are correlated
FEW = 3  # least number of checkpoints that are resampled
ROUNDING = 1e-9  # relative tolerance of comparisons of tokens


@dataclass
class Samples:
    """Means over seeds. A missing number is NaN, and `missing` lists the reason."""

    curves: Bootstrap
    seeds: tuple[int, ...]
    missing: list[str] = field(default_factory=list)
    numbers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # of runs, by key

    def has(self, name: str, quantizer: str) -> bool:
        """Return whether a trajectory is measured under a quantizer."""
        sets = self.curves.sets(quantizer)
        return any(run == name and draw in sets for run, draw, _ in self.curves.series)

    def number(self, key: str, name: str) -> float:
        """Return a configured number of a run; NaN if the run is not shown."""
        return self.numbers.get(key, {}).get(name, nan)

    def any(self, *names: str) -> str:
        """Return the first measured trajectory of some, or the last if none is measured."""
        return next((name for name in names if self.has(name, FULL_PRECISION)), names[-1])

    def end(
        self, names: str | Sequence[str], quantizer: str, metric: str = QUANTIZATION_ERROR
    ) -> Sample:
        """Return the metric at the end of a trajectory, or the mean over several ends."""
        every = (names,) if isinstance(names, str) else tuple(names)

        def read(seed: int) -> Sample:
            if len(every) < FEW:
                ends = [self.curves.checkpoint(name, metric, quantizer, seed, -1) for name in every]
                return np.asarray(np.mean(ends, axis=0))
            ends = [self.curves.of(name, metric, quantizer, seed).values[-1] for name in every]
            return (np.stack(ends) * weights(f"{every} {seed}", len(ends))).sum(axis=0)

        return self._over_seeds(read)

    def gap(
        self, name: str, other: str, quantizer: str = FULL_PRECISION, beside: str = ""
    ) -> Sample:
        """Return one final loss less another, in nats; the other is under `beside`, if given."""
        return self.end(name, quantizer, LOSS) - self.end(other, beside or quantizer, LOSS)

    def at(
        self,
        name: str,
        quantizer: str,
        metric: str = QUANTIZATION_ERROR,
        *,
        share: float = 1.0,
        end_of: str | None = None,
    ) -> Sample:
        """Interpolate the metric at a share of the tokens, or at the tokens where `end_of` ends."""

        def read(seed: int) -> Sample:
            tokens = self.curves.of(name, metric, quantizer, seed).tokens
            level = tokens[0] + share * (tokens[-1] - tokens[0])
            if end_of is not None:
                level = self.curves.of(end_of, metric, quantizer, seed).tokens[-1]
            if not tokens[0] <= level <= tokens[-1] * (1 + ROUNDING):
                raise NotMeasured(f"{name} is not measured at {level:,.0f} tokens")
            place = float(np.interp(level, tokens, np.arange(len(tokens))))
            point = partial(self.curves.checkpoint, name, metric, quantizer, seed)
            low, high = point(floor(place)), point(ceil(place))
            return low + (high - low) * (place % 1)

        return self._over_seeds(read)

    def at_loss(self, name: str, others: Collection[str], quantizer: str) -> Sample:
        """Return the error at the last crossing of the highest final loss of `others`."""

        def read(seed: int) -> Sample:
            ends = [self.curves.of(e, LOSS, FULL_PRECISION, seed).values[-1] for e in others]
            level = np.max(ends, axis=0)
            losses = self._lineage(name, LOSS, FULL_PRECISION, seed)
            errors = self._lineage(name, QUANTIZATION_ERROR, quantizer, seed)
            crossed = (losses[:-1] - level) * (losses[1:] - level) <= 0
            if not crossed[:, 0].any():
                raise NotMeasured(f"{name} never has a loss of {level[0]:.4g}")
            # A replicate that never crosses is read at its end.
            last = (len(crossed) - 1 - np.argmax(crossed[::-1], axis=0))[None]
            (x, x_next), (y, y_next) = (
                [np.take_along_axis(values, last + after, 0)[0] for after in (0, 1)]
                for values in (losses, errors)
            )
            part = (level - x) / np.where(x_next == x, np.inf, x_next - x)
            return np.asarray(y + (y_next - y) * np.clip(part, 0, 1))

        return self._over_seeds(read)

    def over(
        self,
        name: str,
        quantizer: str,
        metric: str = QUANTIZATION_ERROR,
        *,
        shares: tuple[float, float] = (2 / 3, 1.0),
        end_of: str | None = None,
    ) -> Sample:
        """Return the mean between two shares of the tokens of the trajectory, or of `end_of`."""

        def read(seed: int) -> Sample:
            curve = self.curves.of(name, metric, quantizer, seed)
            first, last = curve.tokens[[0, -1]]
            if end_of is not None:
                first, last = 0.0, self.curves.of(end_of, metric, quantizer, seed).tokens[-1]
            low, high = (first + share * (last - first) for share in shares)
            slack = ROUNDING * last
            places = np.flatnonzero((curve.tokens >= low - slack) & (curve.tokens <= high + slack))
            if not len(places):
                raise NotMeasured(f"{name} has no checkpoint in this phase")
            values = curve.values[places]
            if metric in TRAINING:
                pieces = np.array_split(values, min(PIECES, len(values)))
                values = np.stack([piece.mean(axis=0) for piece in pieces])
            elif len(places) < FEW:
                point = partial(self.curves.checkpoint, name, metric, quantizer, seed)
                return np.asarray(np.mean([*map(point, places.tolist())], axis=0))
            key = f"{name} {metric} {quantizer} {seed} {shares} {end_of}"
            return np.asarray((values * weights(key, len(values))).sum(axis=0))

        return self._over_seeds(read)

    def held_out(self, names: Sequence[str], quantizer: str, *laws: str) -> Sample:
        """Return the deviation of a law from runs that its fit leaves out, divided by that of a
        second one; of one law alone, the factor. A trunk is left out with its branches."""

        def read(seed: int) -> Sample:
            parts, errors, groups = list[pd.DataFrame](), list[np.ndarray](), list[str]()
            for name in names:
                curve = self.curves.of(name, QUANTIZATION_ERROR, quantizer, seed)
                losses = self.curves.of(name, LOSS, FULL_PRECISION, seed)
                rates, peak = self.curves.rates(name, seed)
                columns = {"tokens": curve.tokens, "loss": losses.values[:, 0], "lr": rates}
                parts.append(pd.DataFrame(columns).assign(peak=peak))
                errors.append(curve.values)
                groups += [self.curves.trunks.get(name) or name] * len(curve.ids)
            table, y = pd.concat(parts), np.concatenate(errors)
            late = (table.tokens >= law.EARLY * table.tokens.max()).to_numpy()
            x, owners = law.features(table[late]), np.asarray(groups)[late]
            factors = [law.off(law.held_out(x, name, owners, y[late]), y[late]) for name in laws]
            one, *other = map(np.log10, factors)
            return one / other[0] if other else factors[0]

        return self._over_seeds(read)

    def perplexities(
        self, above: Sequence[str], under: Sequence[str], quantizer: str, share: float | None
    ) -> Sample:
        """Return the geometric mean perplexity at the ends of the runs `above`, divided by that of
        the runs `under`, at a share of their tokens. Without a share, the only run `under` is read
        where each run above ends."""
        ends = [self.end(name, quantizer, LOSS) for name in above]
        if share is None:
            others = [self.at(under[0], quantizer, LOSS, end_of=name) for name in above]
        else:
            others = [self.at(name, quantizer, LOSS, share=share) for name in under]
        return np.asarray(np.exp(np.mean(ends, axis=0) - np.mean(others, axis=0)))

    def distance(self, name: str, quantizer: str) -> Sample:
        """Return how far quantization moves the final weights of the first seed; no error."""
        planes = self.curves.inputs.get(needs.landscape(name, quantizer))
        if not planes:
            self.missing.append(f"the distance of {name} under {quantizer} is not measured")
            return NOTHING
        return np.full(REPLICATES, float(planes[0].facts["distance_quantized"]))

    @staticmethod
    def ratio(above: Sample, under: Sample) -> Sample:
        """Return a ratio whose replicates are infinite where the divisor is not positive, so that
        their percentiles are the ends of Fieller's set."""
        with np.errstate(divide="ignore", invalid="ignore"):
            quotient = np.where(under <= 0, np.copysign(np.inf, above), above / under)
            quotient[0] = above[0] / under[0]
        return np.where(np.isnan(above) | np.isnan(under), np.nan, quotient)

    @staticmethod
    def geometric(samples: Sequence[Sample]) -> Sample:
        """Return the geometric mean; smaller values than `law.SMALLEST` count as this."""
        return np.asarray(np.exp(np.log(np.maximum(samples, law.SMALLEST)).mean(axis=0)))

    @staticmethod
    def tenfold(numbers: Mapping[str, float], values: Sequence[Sample]) -> Sample:
        """Return the factor of a tenfold number, by least squares of logarithms."""
        if len(values) < 2:
            return NOTHING
        x = np.log10(list(numbers.values()))
        x = x - x.mean()
        slope = (x[:, None] * np.log10(np.maximum(np.stack(values), law.SMALLEST))).sum(axis=0)
        return np.asarray(10 ** (slope / (x**2).sum()))

    def slope(
        self, names: Sequence[str], quantizer: str, metric: str, *, at_equal_loss: bool = False
    ) -> Sample:
        """Return the factor of the error for a tenfold metric, by regression over checkpoints."""
        trunks = self.curves.trunks
        groups = sorted({trunks.get(name) or name for name in names})  # resampled as one

        def read(seed: int) -> Sample:
            parts, owners = list[list[np.ndarray]](), list[int]()
            for name in names:
                y = self.curves.of(name, QUANTIZATION_ERROR, quantizer, seed)
                x, z = (self.curves.of(name, of, FULL_PRECISION, seed) for of in (metric, LOSS))
                for id_ in (id_ for id_ in y.ids if id_ in x.ids):
                    parts.append([curve.values[curve.ids.index(id_)] for curve in (y, x, z)])
                    owners.append(groups.index(trunks.get(name) or name))
            y_, x_, z_ = np.stack(parts, axis=1)
            weight = np.maximum(weights(f"groups {groups}", len(groups))[owners], 0)
            y_, x_ = (np.log10(np.maximum(v, law.SMALLEST)) for v in (y_, x_))
            y_, x_, z_ = (v - (weight * v).sum(axis=0) / weight.sum(axis=0) for v in (y_, x_, z_))
            if at_equal_loss:
                share = (weight * x_ * z_).sum(axis=0) / (weight * z_**2).sum(axis=0)
                x_ = x_ - z_ * share
            return np.asarray(10 ** ((weight * x_ * y_).sum(axis=0) / (weight * x_**2).sum(axis=0)))

        return self._over_seeds(read)

    def _lineage(self, name: str, metric: str, quantizer: str, seed: int) -> np.ndarray:
        """Return values [checkpoints, replicates] along a trunk up to the branch, and the run."""
        own = self.curves.of(name, metric, quantizer, seed)
        points = [(name, place) for place in range(len(own.ids))]
        points *= 2 if len(points) == 1 else 1  # a curve of one loss
        if (trunk := self.curves.trunks.get(name)) and self.has(trunk, quantizer):
            steps = self.curves.of(trunk, metric, quantizer, seed).steps
            before = np.flatnonzero(steps < own.steps.min()).tolist()
            points = [*((trunk, place) for place in before), *points]
        return np.stack([self.curves.checkpoint(n, metric, quantizer, seed, p) for n, p in points])

    def _over_seeds(self, read: Callable[[int], Sample]) -> Sample:
        """Return the mean over seeds with random effects (DerSimonian and Laird 1986)."""
        try:
            values = np.stack([read(seed) for seed in self.seeds])
        except NotMeasured as missing:
            self.missing.append(missing.reason)
            return NOTHING
        mean, count = values.mean(axis=0), len(values)
        between = float(values[:, 0].var(ddof=1)) if count > 1 else 0.0
        if between:
            # Seeds share text and calibration sets, so their mean is no noise within a seed.
            noise = values[:, 1:] - values[:, 1:].mean(axis=0)
            within = float(noise.var(axis=1).sum()) / (count - 1)
            chance = random(f"seeds {count}")
            off = chance.standard_normal((count, REPLICATES))
            off -= off.mean(axis=0)
            # Student's t, because few seeds give an uncertain variance.
            off /= np.sqrt(count * chance.chisquare(count - 1, REPLICATES))
            off[:, 0] = 0.0
            part = max(0.0, 1 - within / between) ** 0.5
            mean = mean + part * (off * values[:, :1]).sum(axis=0)
        return np.asarray(mean)
