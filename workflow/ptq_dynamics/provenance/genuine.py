"""Whether a file that is traced has the bytes that were published, or only says what it is."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.paths import MANIFEST, RECORD, beside
from ptq_dynamics.figures.settings import ORIGIN, PICTURES
from ptq_dynamics.provenance import sums
from ptq_dynamics.provenance.archive import REFERENCE, TOP, Result
from ptq_dynamics.provenance.sums import Places

Checked = Literal["as published", "different", "unknown"]
# Formats by how a file of each begins, whatever it is called.
BEGIN = {b"%PDF": "pdf", b"\x89PNG": "png"}


def scale_of(path: Path) -> str | None:
    """The scale that a file is released of, by where it lies."""
    with contextlib.suppress(OSError, ValueError):
        top, kept, scale, *_ = _within(path).parts
        return scale if top in TOP and kept == REFERENCE else None
    return None


def described(path: Path) -> Result | None:
    """The result that a released file is of, by the record beside it; its manifest, which would
    name the file, is not released.

    Raises `Problem` where that record is damaged, or the list of what is released has no such file.
    """
    scale = scale_of(path)
    for name in (f"{path.stem}.{RECORD}", RECORD):
        place = path.with_name(name)
        if scale is None or not place.is_file() or beside(place, MANIFEST).exists():
            continue
        known = record.read(place)
        listed = Places.of(scale).sums
        if listed.is_file() and str(_within(path)) not in sums.read(listed):
            raise Problem(f"{path} is not in {listed}, so it is of no release")
        return Result(next(iter(known.output)), known, _within(place))
    return None


def mark(result: Result) -> str:
    """What a drawing of where a result comes from carries, as the result's own pictures do."""
    scale = f"{Path(result.path).parts[1]} scale"
    return ORIGIN.format(scale=scale, identity=result.record.identity)


def check(path: Path, result: Result) -> Checked:
    """What is known of the bytes of a file that is, or says it is, of a result: by the manifest
    of that, or else by the lists of what is released."""
    digest = sha256(path)
    known = {*_published(path, result), *_released(path, result)}
    return "unknown" if not known else "as published" if digest in known else "different"


def _published(path: Path, result: Result) -> Iterator[str]:
    """Digests of a file by its place, or of all files of its format where it lies elsewhere, by the
    manifest of their result if that is there."""
    if path.name.endswith(MANIFEST):
        yield result.digest
    elif path.name.endswith(RECORD) and scale_of(path) is None:
        yield sha256(path)  # else it could not have been read
    else:
        with contextlib.suppress(Problem):
            made = manifest.read(Path(result.path))
            if made.digest() == result.digest:
                places = {made.folder.resolve() / name: name for name in made.files}
                own = places.get(path.resolve())
                names = [name for name in made.files if Path(name).suffix == _suffix(path)]
                yield from (made.files[name]["sha256"] for name in ([own] if own else names))


def _released(path: Path, result: Result) -> Iterator[str]:
    """The same, by the list of what is released, where the result is among that."""
    scale = Path(result.path).parts[1]
    places = Places.of(scale)
    picture = places.pictures / beside(result.path, RECORD).name
    for place in dict.fromkeys((result.place, picture)):
        if scale_of(place) == scale and places.sums.is_file() and _is_of(place, result):
            stem = str(place).removesuffix(RECORD).removesuffix(".")
            own = _within(path) if scale_of(path) == scale else Path(f"{stem}{_suffix(path)}")
            if digest := sums.read(places.sums).get(str(own)):
                yield digest


def _is_of(place: Path, result: Result) -> bool:
    """Whether a record is of a result, as it is released."""
    if place == result.place:
        return True
    with contextlib.suppress(Problem):
        return record.read(place).identity in result.identities
    return False


def _within(path: Path) -> Path:
    """A path from the folder of the project on."""
    return path.resolve().relative_to(Path().resolve())


def _suffix(path: Path) -> str:
    """That of the format of a file: of pictures by how they begin, as they may be renamed."""
    with path.open("rb") as file:
        begin = file.read(4)
    found = next((kind for start, kind in BEGIN.items() if begin.startswith(start)), None)
    return f".{found}" if found in PICTURES else path.suffix
