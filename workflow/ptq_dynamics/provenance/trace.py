"""The chain from a file down to the text and the checkpoints that it comes from."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.paths import MANIFEST, RECORD, beside
from ptq_dynamics.measure import names
from ptq_dynamics.provenance.archive import TOP, Archive, Result, at, identity_in

# Metrics that compare with full precision.
PAIRED = {names.INCREASE, names.QUANTIZATION_ERROR, names.DEGRADATION}
ROW = re.compile(r"(.+\.csv):(\d+)")


@dataclass(frozen=True)
class Chain:
    """The results below one, by the paths of their manifests; the inputs of the top one that are
    followed; inputs without a record here; and whether the file that was traced has the bytes that
    its record lists."""

    top: Result
    read: tuple[str, ...]
    results: Mapping[str, Result]
    missing: tuple[str, ...]
    is_verified: bool

    def inputs(self, result: Result) -> tuple[str, ...]:
        """The manifests that a result was made from, as far as they are followed."""
        return self.read if result.path == self.top.path else tuple(result.record.inputs)

    def lines(self) -> Iterator[tuple[int, Result, bool]]:
        """Depth and result of every line of the tree, and whether it was shown above already."""
        shown = set[str]()

        def below(path: str, depth: int) -> Iterator[tuple[int, Result, bool]]:
            if (result := self.results.get(path)) is not None:
                inputs, again = self.inputs(result), path in shown
                shown.add(path)
                yield depth, result, again and bool(inputs)
                for each in () if again else inputs:
                    yield from below(each, depth + 1)

        return below(self.top.path, 0)

    def mermaid(self) -> str:
        """The lineage as a Mermaid graph, whose arrows lead from an input to what reads it."""
        nodes = {path: f"n{number}" for number, path in enumerate(self.results)}
        lines = [f'{node}["{self.results[path].label}"]' for path, node in nodes.items()]
        for path, result in self.results.items():
            known = (nodes[each] for each in self.inputs(result) if each in nodes)
            lines += [f"{node} --> {nodes[path]}" for node in known]
        return "\n  ".join(["graph TD", *lines])


def trace(text: str, archive: Archive) -> Chain:
    """The chain of what a path names: a file of a result, a picture from elsewhere, or one row of
    a table of measurements as `measurements.csv:ROW` (the first row below the head is 1).

    Raises `Problem` where nothing is known of it.
    """
    row = ROW.fullmatch(text)
    path = Path(row[1] if row else text)
    if not path.is_file():
        raise Problem(f"{path} does not exist; name a result file or a figure of this project")
    top = _result(path, archive)
    read = _inputs_of(path, int(row[2]), top) if row else tuple(top.record.inputs)
    results, missing = archive.follow({each: top.record.inputs[each] for each in read})
    results[top.path] = top
    return Chain(top, read, results, tuple(missing), _is_verified(path, top))


def _result(path: Path, archive: Archive) -> Result:
    owner, carried = _owner(path), identity_in(path)
    # Another picture may lie in the place of one; it is known by what it carries.
    if owner is not None and (carried is None or _is_verified(path, owner)):
        return owner
    if carried is None:
        raise Problem(
            f"{path} belongs to no result of this checkout; name a file below results or "
            "figures, or a figure that this workflow drew"
        )
    scale, identity = carried
    for each in archive.every:
        if identity in (each.record.carried, each.record.identity):
            return each
    raise Problem(
        f"{path} has identity {identity[:16]} ({scale}), which matches no local record; run the "
        "command in the checkout that drew the figure"
    )


def _owner(path: Path) -> Result | None:
    """The result whose record, in the folder or above, lists a file; `Problem` if it is damaged."""
    if path.name.endswith((MANIFEST, RECORD)):
        return at(beside(path, RECORD))
    for folder in path.parents:
        for place in (folder / f"{path.stem}.{RECORD}", folder / RECORD):
            found = at(place) if place.is_file() else None
            if found is not None and path.relative_to(folder).as_posix() in found.record.files:
                return found
        if folder.name in TOP:
            break
    return None


def _is_verified(path: Path, result: Result) -> bool:
    """Whether a file has the bytes of one of a result's files, or is its manifest or record."""
    if path.name.endswith(RECORD):
        return True
    known = {each["sha256"] for each in result.record.files.values()}
    return sha256(path) in {*known, *([result.digest] if path.name.endswith(MANIFEST) else [])}


def _inputs_of(path: Path, number: int, top: Result) -> tuple[str, ...]:
    """The inputs of a table that one of its rows comes from."""
    from ptq_dynamics.measure import measurements  # It imports pandas.

    try:
        row = measurements.read(path)[list(measurements.COLUMNS)].loc[number - 1]
    except (ValueError, KeyError):
        raise Problem(f"{path} is no table of measurements with a row {number}") from None
    quantizers = [row.quantizer, *([names.FULL_PRECISION] if row.metric in PAIRED else [])]
    # After the kind of raw result, as in `Series.label`.
    ends = tuple(f" {row.trajectory} seed {row.seed} {quantizer}" for quantizer in quantizers)
    labels: Mapping[str, list[str]] = top.record.job["inputs"]
    return tuple(path for key, group in labels.items() for path in group if key.endswith(ends))
