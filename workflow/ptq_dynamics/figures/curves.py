"""From measurements to the points of curves."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pandas as pd

from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures import words
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.figures.readings import POINT, Readings, over_seeds
from ptq_dynamics.figures.words import Panel
from ptq_dynamics.measure import names
from ptq_dynamics.measure.pairing import difference
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.train.settings import TRAINING
from ptq_dynamics.train.trajectory import CURVE, Trajectory

# Of points: the curve, the trajectory (segment), the axis (left, right, or level: on the left one,
# a line for comparison without points), and the place; low and high bound the band, if any.
COLUMNS = ["curve", "segment", "axis", "x", "y", "low", "high"]


class Curves:
    """The measurements that a figure's query names (see `Readings`), curve by curve; bands go one
    error up and down."""

    def __init__(self, context: Context[FigureSettings]) -> None:
        self.settings, self.inputs = context.settings, context.inputs
        self.read = Readings(self.settings, self.inputs)
        # The parts of every seed's.
        self._runs: dict[str, list[Sequence[Manifest]]] = {}
        for run in self.settings.runs:
            self._runs.setdefault(run.name, []).append(context.inputs[run.label])
        self._branches = {run.name: (run.trunk, run.at or 0) for run in self.settings.runs}
        self.curves = dict(self.settings.curves)
        self.quantizers = {shown.name: shown for shown in self.settings.quantizers}
        self.labels = list(self.curves)
        self.called = words.call(self.settings.quantizers)

    def wanted(self, *, quantized_losses: bool = False) -> Iterator[tuple[str, str | None]]:
        """Every metric of the query with every quantizer, or None for full precision; the loss in
        full precision alone unless it is also wanted of quantized weights."""
        for metric in self.settings.figure.metrics:
            if metric in words.FULL_PRECISION:
                yield metric, None
            if metric not in words.FULL_PRECISION or (metric == names.LOSS and quantized_losses):
                for quantizer in self.quantizers:
                    yield metric, quantizer

    def panel(self, metric: str, quantizer: str | None, x: str, group: str = "") -> Panel:
        """A panel for a metric against `x`."""
        called = None if quantizer is None else self.called[quantizer]
        return words.panel(metric, called, x, group)

    def over_tokens(self, metric: str, quantizer: str | None) -> Panel:
        """A panel for a metric against training tokens, with the learning rate on the right."""
        panel = self.panel(metric, quantizer, "Training tokens")
        right = words.learning_rate(self.settings.uncertain_rates)
        return replace(panel, right=right, tokens_x=True, crop=metric == names.LOSS)

    def points(self, metric: str, quantizer: str | None, *, lineage: bool = False) -> pd.DataFrame:
        """A metric against tokens, of every measured checkpoint or as the training curves have it,
        with a band where it has one. With `lineage`, a run ends where a branch in its curve
        begins."""
        if metric in TRAINING:
            return self._training(metric, lineage)
        if metric == names.EIGENVALUES:
            return self._ranks()
        return self._points(self.read.select(metric, quantizer), names.TOKENS, lineage)

    def _ranks(self) -> pd.DataFrame:
        """Magnitudes of the leading eigenvalues by rank, at every trajectory's last checkpoint."""
        parts = []
        ranked = [name for name in self.read.metrics if name.startswith(names.EIGENVALUE)]
        for rank, name in enumerate(ranked, start=1):
            rows = self.read.rows(name, None)
            rows = rows.assign(value=rows.value.abs(), rank=rank)
            parts.append(_last_of(self._points(over_seeds(rows, names.CHECKPOINT), "rank")))
        return pd.concat(parts).sort_values(["curve", "segment", "x"], kind="stable")

    def against_share(self, metric: str, quantizer: str | None) -> pd.DataFrame:
        """A metric along a line, against the share of the way."""
        table = self.read.select(metric, quantizer)
        ends = table.groupby(names.TRAJECTORY).step.transform("max")
        return self._points(table.assign(share=table.step / ends), "share")

    def against_phase(self, metric: str, quantizer: str | None) -> pd.DataFrame:
        """A metric along what branches off a run, against the share of its steps; the last of
        averages, which have no beginning, at the end."""
        table = self.read.select(metric, quantizer)
        starts = {name: at for name, (trunk, at) in self._branches.items() if trunk is not None}
        start = table.trajectory.map(starts).astype(float)
        step, last = table.step.astype(float), table.groupby(names.TRAJECTORY).step.transform("max")
        share = (step - start) / (last.astype(float) - start)
        ends = ~table.trajectory.isin(self._branches) & ~table.trajectory.duplicated(keep="last")
        points = self._points(table.assign(share=share.mask(ends, 1.0)), "share")
        # A run goes through the points where its branches begin, and is no phase itself.
        return points[points.segment.isin(starts) | ~points.segment.isin(self._branches)]

    def against_age(self, metric: str, quantizer: str | None) -> pd.DataFrame:
        """A metric of averages against the mean age of what is in them, a line a curve; of other
        trajectories the last one, a level over all ages."""
        ages = {(trajectory, name): age for trajectory, name, age in self.settings.ages}
        table = self.read.select(metric, quantizer)
        points = zip(table.trajectory, table.checkpoint_id, strict=True)
        table = table.assign(age=[ages.get(point, math.nan) for point in points])
        aged = self._points(table, "age")
        aged = aged.assign(segment=aged.curve).sort_values("x", kind="stable")
        aged = pd.concat([aged[aged.curve == curve] for curve in self.labels])
        last = _last_of(self.points(metric, quantizer))
        levels = last[~last.segment.isin({trajectory for trajectory, _ in ages})]
        levels = levels.assign(axis="level")
        return pd.concat([aged, *(levels.assign(x=end(ages.values())) for end in (min, max))])

    def ends(self, metric: str, quantizer: str | None) -> pd.DataFrame:
        """A metric of every trajectory's last checkpoint against its tokens, a line a curve."""
        last = _last_of(self.points(metric, quantizer))
        return last.assign(segment=last.curve).sort_values(["curve", "x"], kind="stable")

    def against_loss(self, metric: str, quantizer: str, *, lineage: bool = False) -> pd.DataFrame:
        """A metric of quantized weights against the loss in full precision, along every run."""
        key = [names.TRAJECTORY, names.CHECKPOINT]
        before = self.read.select(names.LOSS, None).set_index(key)[names.VALUE].rename("before")
        table = self.read.select(metric, quantizer).join(before, on=key)
        return self._points(table, "before", lineage)

    def against_rate(self, metric: str, quantizer: str) -> pd.DataFrame:
        """A metric of quantized weights against the learning rate next in the schedule."""
        return self._points(self.read.select(metric, quantizer), "lr")

    def learning_rates(self, *, lineage: bool = False) -> pd.DataFrame:
        """The learning rate of every run, on the right axis; it is the same for all seeds."""
        rows = []
        for curve, name, last in self._segments(lineage):
            if name not in self._runs:
                continue
            for checkpoint in Trajectory(self._runs[name][0]).checkpoints:
                if last is None or (checkpoint.step or 0) <= last:
                    point = (curve, name, "right", checkpoint.tokens, checkpoint.lr)
                    rows.append((*point, math.nan, math.nan))
        numbers = dict.fromkeys(COLUMNS[3:], float)
        return pd.DataFrame(rows, columns=COLUMNS).astype(numbers)

    def against_metric(self, other: str, metric: str, quantizer: str | None) -> pd.DataFrame:
        """A metric against another one in full precision, a point a checkpoint and seed, with its
        loss in full precision: weights that lie on several trajectories once, with the first. The
        band is one standard error."""
        before = self.read.rows(names.LOSS, None).set_index(POINT)[names.VALUE].rename("before")
        against = self.read.rows(other, None).set_index(POINT)[[names.VALUE, "checkpoint"]]
        against = against.rename(columns={names.VALUE: "other", "checkpoint": "weights"})
        table = self.read.rows(metric, quantizer).join(against, on=POINT, how="inner")
        table = table.join(before, on=POINT)
        parts = []
        for curve, name, _ in self._segments(False):
            part = table[table.trajectory == name].sort_values(names.STEP, kind="stable")
            points = {"curve": curve, "segment": name, "x": part.other, **_band(part)}
            points |= {"weights": part.weights, names.SEED: part.seed, names.LOSS: part.before}
            parts.append(pd.DataFrame(points))
        return pd.concat(parts).drop_duplicates("weights").drop(columns="weights")

    def paired(
        self, metric: names.Paired, one: str, other: str, quantizer: str | None
    ) -> pd.DataFrame:
        """How much larger a metric of losses is on one trajectory than on another, at equal steps
        and seeds, the mean over the calibration draws of both: seed, step, value, and stderr, its
        standard error over the blocks that both are validated on."""
        pairs: dict[int | None, list[tuple[Series, Series]]] = {}
        for mine, theirs in product(
            self.read.series(one, quantizer), self.read.series(other, quantizer)
        ):
            if (mine.seed, mine.quantizer) == (theirs.seed, theirs.quantizer):
                pairs.setdefault(mine.seed, []).append((mine, theirs))
        rows = []
        for seed, alike in pairs.items():
            values = difference(metric, alike, self.inputs)
            rows += [(seed, step, *found) for step, found in values.items()]
        return pd.DataFrame(rows, columns=[names.SEED, names.STEP, names.VALUE, names.ERROR])

    def _training(self, column: str, lineage: bool) -> pd.DataFrame:
        """A column of the training curves of the runs against tokens."""
        parts = []
        for curve, name, last in self._segments(lineage):
            if name not in self._runs:
                continue
            seeds = [pd.read_csv(manifest.file(CURVE)) for manifest, *_ in self._runs[name]]
            rows = pd.concat(seeds).assign(trajectory=name, stderr=math.nan)
            rows = over_seeds(rows.rename(columns={column: names.VALUE}), names.STEP)
            rows = rows if last is None else rows[rows.step <= last]
            place = {"curve": curve, "segment": name, "axis": "left", "x": rows.tokens}
            parts.append(pd.DataFrame(place | _band(rows)))
        return pd.concat(parts, ignore_index=True)[COLUMNS]

    def _segments(self, lineage: bool) -> Iterator[tuple[str, str, int | None]]:
        """Curve, trajectory and, with `lineage`, the step at which another trajectory of the curve
        takes over from it."""
        for curve, members in self.curves.items():
            ends: dict[str, int] = {}
            for trunk, at in (self._branches.get(name, (None, 0)) for name in members):
                if lineage and trunk:
                    ends[trunk] = max(at, ends.get(trunk, 0))
            for name in members:
                yield curve, name, ends.get(name)

    def _points(self, table: pd.DataFrame, x: str, lineage: bool = False) -> pd.DataFrame:
        # What has no place on the axis is not drawn; a merged model may have one without a step.
        table = table[table[x].notna()]
        parts = []
        for curve, name, last in self._segments(lineage):
            part = table[table.trajectory == name]
            # Where something branches off, it has this trajectory's weights, and is measured.
            forks = [n for n, (trunk, _) in self._branches.items() if trunk == name]
            starts = table[table.trajectory.isin(forks)]
            starts = starts[starts.step == starts.trajectory.map(lambda n: self._branches[n][1])]
            part = pd.concat([part, starts]).drop_duplicates(names.CHECKPOINT)
            # By several columns it sorts stably, those without a step last.
            part = part.sort_values([names.STEP, names.TOKENS])
            part = part if last is None else part[part.step <= last]
            place = {"curve": curve, "segment": name, "axis": "left", "x": part[x]}
            parts.append(pd.DataFrame(place | _band(part)))
        return pd.concat(parts, ignore_index=True)[COLUMNS]


def _band(table: pd.DataFrame) -> dict[str, pd.Series]:
    low, high = table.value - table.stderr, table.value + table.stderr
    return {"y": table.value, "low": low, "high": high}


def _last_of(points: pd.DataFrame) -> pd.DataFrame:
    """The last point of every trajectory of a curve."""
    return points.groupby(["curve", "segment"], sort=False).tail(1)
