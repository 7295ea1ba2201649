"""Run jobs again as their records have them, and compare the bytes of what comes out."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ptq_dynamics.engine.paths import RECORD, beside
from ptq_dynamics.engine.restore import again
from ptq_dynamics.provenance.archive import Result


def remade(results: Sequence[Result], at_once: int) -> Iterator[str]:
    """What of some results does not come out again as it is, a line each."""
    with ThreadPoolExecutor(at_once) as pool:
        reasons = pool.map(lambda result: again(_record(result), "compare"), results)
        for result, reason in zip(results, reasons, strict=True):
            if reason:
                yield f"{result.path} made again: {reason}"


def _record(result: Result) -> Path:
    return beside(result.path, RECORD)
