"""Trace a file down to text and public checkpoints."""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path

from ptq_dynamics.base import needs
from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.curvature.probes import Probe
from ptq_dynamics.engine.paths import MANIFEST, RECORD, TOP, Spec, beside
from ptq_dynamics.figures.columns import owners
from ptq_dynamics.figures.layout import BEFORE
from ptq_dynamics.measure import names
from ptq_dynamics.provenance.archive import Archive, Result, at, identity_in
from ptq_dynamics.train.settings import TRAINING

# Metrics relative to full precision.
PAIRED = {names.INCREASE, names.QUANTIZATION_ERROR, names.DEGRADATION, "chance"}
COUNTED = {"seeds": "seeds", "draws": "calibration sets", "checkpoint_id": "checkpoints"}
KEY = ("trajectory", "seed", "quantizer", "checkpoint_id", "task", "metric")
ROW = re.compile(r"(.+\.csv):(\d+)")
Row = Mapping[str, str]


@dataclass(frozen=True)
class Chain:
    """The lineage of a file, or of a `row` of it."""

    top: Result  # the owner of the file
    read: tuple[str, ...]  # inputs of `top` that the file or row comes from
    results: Mapping[str, Result]  # by manifest
    missing: tuple[str, ...]  # manifests without a record
    is_verified: bool  # whether the file has the bytes that its record lists
    row: Row | None
    table: Path  # of measurements
    rows: Mapping[int, Row] | None  # of `table` behind `row`; None: the table is not built

    def inputs(self, result: Result) -> tuple[str, ...]:
        """Return the manifests that a result was made from."""
        return self.read if result.path == self.top.path else tuple(result.record.inputs)

    def words(self, most: int) -> Iterator[str]:
        """Yield lines about the row: value, unit, counts, and at most `most` measurements."""
        row, known = self.row, self.rows or {}
        if row and "unit" in row:
            band = f" ({row['low']} to {row['high']})" if row["low"] else ""
            value = f"{row['increase'] or row['y']} {row['unit']}".strip() + band
            yield f"{row['curve']}, {row['metric']} {row['quantizer']}: {value} at x = {row['x']}"
            counts = {what: len(row[column].split()) for column, what in COUNTED.items()}
            mean = " × ".join(f"{n} {what}" for what, n in counts.items() if n > 1) or "one value"
            count = "unknown" if self.rows is None else len(known) or "none"
            yield f"from {mean}; rows of {self.table}: {count}"
        for number, measurement in [*known.items()][:most]:
            key = " ".join(measurement[name] for name in KEY if measurement[name])
            yield f"  {self.table}:{number} {measurement['value']} ({key})"
        if len(known) > most:
            yield f"  and {len(known) - most} more; --json lists all"

    def lines(self) -> Iterator[tuple[int, Result, list[str]]]:
        """Yield depth and result of each line of the tree, and labels of inputs on other lines."""
        shown = {self.top.path}

        def below(result: Result, depth: int) -> Iterator[tuple[int, Result, list[str]]]:
            known = [self.results[path] for path in self.inputs(result) if path in self.results]
            new = [source for source in known if source.path not in shown]
            yield depth, result, [source.label for source in known if source.path in shown]
            shown.update(source.path for source in new)
            for source in new:
                yield from below(source, depth + 1)

        return below(self.top, 0)


def trace(text: str, archive: Archive) -> Chain:
    """Trace a file of a result, a picture from elsewhere, or a row as `FILE.csv:ROW`, from 1.
    Raises `Problem` if no record lists the file."""
    match = ROW.fullmatch(text)
    path = Path(match[1] if match else text)
    if not path.is_file():
        raise Problem(f"{path} does not exist; name a result file or a figure of this project")
    top = _result(path, archive)
    row, table, rows = _row(path, int(match[2])) if match else (None, path, {})
    read = inputs_of(row, top.record.job) if row else tuple(top.record.inputs)
    results, missing = archive.follow({source: top.record.inputs[source] for source in read})
    results[top.path] = top
    return Chain(top, read, results, tuple(missing), _is_verified(path, top), row, table, rows)


def inputs_of(row: Row, job: Spec) -> tuple[str, ...]:
    """Return a job's inputs of the metric, quantizers, trajectories and seeds of a row."""
    if names.METRIC not in row:
        return ()
    quantizers = row.get("draws", row["quantizer"]).split() or [row["quantizer"]]
    paired = row["metric"] in PAIRED or row.get("x_axis") == BEFORE
    quantizers += [names.FULL_PRECISION] if paired else []
    seeds = row.get("seeds", row.get("seed", "")).split() or ["None"]
    every = product(quantizers, row["trajectory"].split(), seeds)
    labels = dict.fromkeys(_label(row["metric"], n, s, q) for q, n, s in every)
    return tuple(path for label in labels for path in job["inputs"].get(label, ()))


def _label(metric: str, name: str, seed: str, quantizer: str) -> str:
    """Return the label of the inputs with a metric of a trajectory."""
    if metric.startswith((*TRAINING, "lr")):
        return needs.run(name, seed)
    if metric.startswith("landscape"):
        return needs.landscape(name, quantizer)
    if metric.startswith(needs.COMPONENTS):
        return needs.COMPONENTS
    probes = {start: kind for start, kind in owners().items() if issubclass(kind, Probe)}
    kinds = [kind.label() for start, kind in probes.items() if metric.startswith(start)]
    kinds += ["spectrum"] if metric.startswith(names.EIGENVALUE) else [needs.MEASURE]
    return needs.measured(name, seed, quantizer, kinds[0])


def _row(path: Path, number: int) -> tuple[Row, Path, dict[int, Row] | None]:
    """Return a row, the table of measurements, and that table's rows behind it (see `Chain`)."""
    row = _rows(path).get(number, {})
    if not {*KEY[:4], names.METRIC} - {names.SEED} <= row.keys():
        raise Problem(f"{path} has no row {number} with measurements; draw an old figure again")
    if names.VALUE in row:
        return row, path, {number: row}
    # Beside the folder of figures lies that of results.
    top, _, scale = str(path.parent).rpartition("figures")
    table = Path(f"{top}results{scale}", names.MEASUREMENTS)
    if not table.is_file():
        return row, table, None if row["checkpoint_id"] else {}
    points = {*zip(cycle(row["trajectory"].split()), row["checkpoint_id"].split(), strict=False)}
    same = {names.METRIC: [row["metric"]], names.TASK: [row["task"]]}
    same |= {names.QUANTIZER: row["draws"].split(), names.SEED: row["seeds"].split() or [""]}
    measured = {
        number: measurement
        for number, measurement in _rows(table).items()
        if (measurement["trajectory"], measurement["checkpoint_id"]) in points
        and all(measurement[column] in values for column, values in same.items())
    }
    return row, table, measured


def _rows(path: Path) -> dict[int, Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return dict(enumerate(csv.DictReader(file), start=1))


def _result(path: Path, archive: Archive) -> Result:
    owner, carried = _owner(path), identity_in(path)
    # A picture with another identity may have replaced the owner's picture.
    if owner is not None and (carried is None or _is_verified(path, owner)):
        return owner
    if carried is None:
        mend = "name a file below results or figures, or a figure that this workflow drew"
        raise Problem(f"{path} belongs to no result of this checkout; {mend}")
    scale, identity = carried
    for result in archive.every:
        if identity in (result.record.carried, result.record.identity):
            return result
    what = f"identity {identity[:16]} ({scale}), which matches no local record"
    raise Problem(f"{path} has {what}; run the command in the checkout that drew the figure")


def _owner(path: Path) -> Result | None:
    """Find the record in the folder or above that lists a file; `Problem` if it is damaged."""
    if path.name.endswith((MANIFEST, RECORD)):
        return at(beside(path, RECORD))
    for folder in path.parents:
        for place in (folder / f"{path.stem}.{RECORD}", folder / RECORD):
            owner = at(place) if place.is_file() else None
            if owner is not None and path.relative_to(folder).as_posix() in owner.record.files:
                return owner
        if folder.name in TOP:
            break
    return None


def _is_verified(path: Path, result: Result) -> bool:
    """Return whether a file has the bytes of a file of a result, its manifest included."""
    known = {result.digest, *(file["sha256"] for file in result.record.files.values())}
    return path.name.endswith(RECORD) or sha256(path) in known
