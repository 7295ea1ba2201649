"""The documents of public data sets: in what files they lie, and reading on from any of them.

A data set is a hub repository at a pinned commit or a local folder, laid out as
`datasets.load_dataset` takes it, in Parquet or JSON Lines (compressed or not). Its documents have
one order: that of its files, and of the rows in them. A stretch is a run of them within one file;
stretches are read in any order and by any process.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO

import fsspec
import httpx
import pyarrow.parquet as pq
from huggingface_hub.errors import HfHubHTTPError

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus.settings import Source

STRETCH = 20_000  # documents; about 20M tokens of web text, a minute of one core
WAITS = (1, 5, 30, 120)  # seconds before reading is tried again
ROWS = 1000  # of a Parquet file, in memory at once


@dataclass(frozen=True)
class Stretch:
    """`count` documents of a file (None: all) after its first `skip`, read from `field`."""

    file: str
    field: str
    skip: int
    count: int | None


def files(source: Source) -> list[str]:
    """The files of a data set's split, in its order.

    Raises `Problem` when there is no such data set, configuration or split.
    """
    from datasets import load_dataset_builder  # slow, and not needed by those who only read

    place = f"data set {source.path}"
    if source.revision is None and not Path(source.path).is_dir():
        raise Problem(f"{place} is no folder; a data set of the hub needs a revision")
    try:
        builder = load_dataset_builder(
            source.path, source.name, data_files=source.data_files, revision=source.revision
        )
    except (OSError, ValueError, httpx.HTTPError) as error:
        raise Problem(f"{place} cannot be read: {_reason(error)}") from error
    found = {str(split): list(names) for split, names in builder.config.data_files.items()}
    if source.split not in found:
        raise Problem(f"{place} has no split {source.split!r}, only {', '.join(found)}; set split")
    return found[source.split]


def stretches(source: Source) -> Iterator[Stretch]:
    """All of a data set's documents but the first `skip`, in its order."""
    left = source.skip
    for file in files(source):
        if _is_parquet(file):
            count = _again(file, _rows)
            for first in range(min(left, count), count, STRETCH):
                yield Stretch(file, source.field, first, min(STRETCH, count - first))
        else:
            count = _again(file, partial(_lines, at_most=left))
            if count == left:
                yield Stretch(file, source.field, left, None)
        left -= min(left, count)


def texts(stretch: Stretch) -> Iterator[str]:
    """The documents of a stretch; a broken connection is taken up again where it broke.

    Raises `Problem` when the file has no such field, or cannot be read after several tries.
    """
    read = _parquet if _is_parquet(stretch.file) else _json_lines
    taken = failures = 0
    while True:
        try:
            with _open(stretch.file) as file:
                for text in islice(read(file, stretch, taken), _left(stretch, taken)):
                    yield text
                    taken += 1
                    failures = 0
            return
        except (OSError, httpx.HTTPError) as error:
            failures += 1
            _wait(stretch.file, error, failures)


def _left(stretch: Stretch, taken: int) -> int | None:
    return None if stretch.count is None else stretch.count - taken


def _open(file: str) -> IO[bytes]:
    opened: IO[bytes] = fsspec.open(file, "rb", compression="infer").open()
    return opened


def _is_parquet(file: str) -> bool:
    return file.endswith(".parquet")


def _rows(file: str) -> int:
    with _open(file) as opened:
        rows: int = pq.ParquetFile(opened).metadata.num_rows
        return rows


def _lines(file: str, at_most: int) -> int:
    with _open(file) as opened:
        return sum(1 for _ in islice(_full(opened), at_most))


def _full(file: IO[bytes]) -> Iterator[bytes]:
    return (line for line in file if line.strip())


def _parquet(file: IO[bytes], stretch: Stretch, taken: int) -> Iterator[str]:
    table = pq.ParquetFile(file)
    if stretch.field not in table.schema_arrow.names:
        raise _no_field(stretch)
    skip = stretch.skip + taken
    for group in range(table.num_row_groups):
        rows = table.metadata.row_group(group).num_rows
        if skip >= rows:
            skip -= rows
            continue
        for batch in table.iter_batches(ROWS, row_groups=[group], columns=[stretch.field]):
            for value in batch.column(0)[skip:].to_pylist():
                yield _text(value, stretch)
            skip = max(0, skip - len(batch))


def _json_lines(file: IO[bytes], stretch: Stretch, taken: int) -> Iterator[str]:
    for line in islice(_full(file), stretch.skip + taken, None):
        try:
            row = json.loads(line)
            value = row[stretch.field]
        except KeyError:
            raise _no_field(stretch) from None
        except (ValueError, TypeError):
            raise Problem(f"{stretch.file} is neither Parquet nor JSON Lines") from None
        yield _text(value, stretch)


def _text(value: object, stretch: Stretch) -> str:
    if not isinstance(value, str):
        raise Problem(f"{stretch.file} has a row whose {stretch.field!r} is no text; set field")
    return value


def _no_field(stretch: Stretch) -> Problem:
    return Problem(f"{stretch.file} has no field {stretch.field!r}; set field")


def _again(file: str, count: Callable[[str], int]) -> int:
    failures = 0
    while True:
        try:
            return count(file)
        except (OSError, httpx.HTTPError) as error:
            failures += 1
            _wait(file, error, failures)


def _wait(file: str, error: Exception, failures: int) -> None:
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else 500
    final = isinstance(error, FileNotFoundError | PermissionError)
    final = final or (400 <= status < 500 and status not in (408, 429))
    if final or failures > len(WAITS):
        raise Problem(
            f"{file} cannot be read: {_reason(error)}; run the same command again to go on"
        ) from error
    time.sleep(WAITS[failures - 1])


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0] or type(error).__name__
