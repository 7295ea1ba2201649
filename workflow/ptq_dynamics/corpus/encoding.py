"""Tokenizing a data set on several cores, so that it can be interrupted.

Stretches of documents are tokenized by worker processes, each into a part file of its own, and the
parts go into the split's file in the data set's order; so the file depends on the documents and the
tokenizer alone. What has been done is kept under `scratch`: parts that are whole, and how much of
the split's file is written.
"""

import json
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from multiprocessing import connection
from pathlib import Path
from typing import IO, Any

import numpy as np
from tokenizers import Tokenizer

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus.documents import Stretch, texts
from ptq_dynamics.engine.context import Progress

BATCH = 256  # documents tokenized at once
PARTIAL = ".partial"  # suffix of a part that is not whole


@dataclass(frozen=True)
class Encoding:
    """How documents become tokens: the tokenizer's file, what ends a document (None: nothing), and
    the dtype of tokens."""

    tokenizer: Path
    end: int | None
    dtype: np.dtype

    def documents(self, stretches: Iterable[Stretch]) -> Iterator[np.ndarray]:
        """Tokens of each document, `dtype` [n]."""
        end = [] if self.end is None else [self.end]
        found = chain.from_iterable(map(texts, stretches))
        while batch := list(islice(found, BATCH)):
            for encoding in _tokenizer(self.tokenizer).encode_batch_fast(
                batch, add_special_tokens=False
            ):
                yield np.asarray(encoding.ids + end, dtype=self.dtype)


@dataclass
class _Done:
    """What is in the split's file: parts in order, and their tokens."""

    parts: int = 0
    tokens: int = 0


def encode(
    stretches: Iterator[Stretch],
    encoding: Encoding,
    wanted: int,
    file: Path,
    scratch: Path,
    progress: Progress,
) -> int:
    """Write the first `wanted` tokens of the stretches to `file`; returns how many there were.

    Goes on with what an interrupted call left in `file` and `scratch`. Raises `Problem` when
    documents cannot be read, or a worker is killed.
    """
    scratch.mkdir(exist_ok=True)
    state = scratch / "done.json"
    done = _Done(**json.loads(state.read_text())) if state.exists() else _Done()
    size = encoding.dtype.itemsize
    start, before = time.monotonic(), done.tokens
    with file.open("ab") as out, _Workers(encoding) as workers:
        out.truncate(done.tokens * size)
        waiting: deque[tuple[Path, Future[None] | None]] = deque()
        upcoming = islice(enumerate(stretches), done.parts, None)
        while done.tokens < wanted:
            for number, stretch in islice(upcoming, workers.count * 2 - len(waiting)):
                part = scratch / f"{number:07d}.part"
                whole = part.exists()
                limit = wanted - done.tokens
                waiting.append((part, None if whole else workers.submit(stretch, part, limit)))
            if not waiting:
                break
            part, future = waiting.popleft()
            if future is not None:
                future.result()
            take = min(part.stat().st_size, (wanted - done.tokens) * size)
            _append(part, out, take)
            done = _Done(done.parts + 1, done.tokens + take // size)
            write_atomically(state, json.dumps(vars(done)))
            part.unlink()
            rate = (done.tokens - before) / (time.monotonic() - start)
            left = (wanted - done.tokens) / max(rate, 1)
            progress.maybe(
                f"{file.stem}: {done.tokens:,} of {wanted:,} tokens, {rate:,.0f} tokens/s, "
                f"about {left:,.0f} s to go"
            )
    return done.tokens


def _append(part: Path, out: IO[bytes], size: int) -> None:
    with part.open("rb") as file:
        while size > 0:
            block = file.read(min(size, 1 << 20))
            out.write(block)
            size -= len(block)
    out.flush()
    os.fsync(out.fileno())


class _Workers:
    """Processes that tokenize stretches into part files; they end with this process, or when the
    block is left, whatever they are doing."""

    def __init__(self, encoding: Encoding) -> None:
        self.count = max(1, int(os.environ.get("OMP_NUM_THREADS", 1)))
        self._encoding = encoding
        # Not forked: libraries that read over a network have threads.
        context = multiprocessing.get_context("spawn")
        self._stop: Any = context.RawValue("b", 0)
        self._pool = ProcessPoolExecutor(self.count, context, _begin, (self._stop,))

    def submit(self, stretch: Stretch, part: Path, limit: int) -> Future[None]:
        """Start to write the stretch's tokens to `part`, at least the first `limit`."""
        return self._pool.submit(_encode, stretch, part, limit, self._encoding)

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._stop.value = 1
        self._pool.shutdown(cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise Problem(
                "a worker process was killed, perhaps for want of memory; run the same command "
                "again to go on, with fewer cores if memory is short"
            ) from error


def _begin(stop: Any) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the other cores have a worker each
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too
    threading.Thread(target=_end_in_time, args=(stop,), daemon=True).start()


def _end_in_time(stop: Any) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    while not stop.value and not connection.wait([parent.sentinel], 0.2):
        pass
    os._exit(1)


def _encode(stretch: Stretch, part: Path, limit: int, encoding: Encoding) -> None:
    written, partial = 0, part.with_suffix(PARTIAL)
    with partial.open("wb") as file:
        for document in encoding.documents([stretch]):
            file.write(document.tobytes())
            written += len(document)
            if written >= limit:
                break
        file.flush()
        os.fsync(file.fileno())
    partial.replace(part)


@cache
def _tokenizer(path: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
