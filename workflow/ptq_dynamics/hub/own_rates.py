"""Learning rates and phases of own checkpoints, from files beside them."""

import csv
import pickle
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import inf, isclose, isfinite
from pathlib import Path
from typing import Any, NoReturn
from zipfile import BadZipFile, ZipFile

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.hub import folders

SCHEDULER = "scheduler.pt"  # beside a checkpoint of the Trainer of transformers
UNKNOWN = "checkpoint"  # phase of a checkpoint whose rate is not known
RESTART = "restart"  # phase of a checkpoint whose rate has risen again after a decay
LARGEST = 2**20  # bytes of a scheduler's content
ROUNDING = 1e-12  # largest relative difference of equal rates
RatesAndPhases = dict[int | None, tuple[float | None, str]]  # learning rate and phase by step


def logged(state: folders.State, version: str) -> dict[int, float]:
    """Return the rates of the next update by step, from a trainer_state.json and the version of
    transformers that wrote it."""
    # From 4.51 on, the Trainer logs the rate of the last update. 4.50 was the first version to
    # write best_global_step, and a checkpoint that is saved again has a later version.
    is_of_last = state.names_best and not version.startswith("4.50.")
    return {step - is_of_last: rate for step, rate in state.log if rate is not None}


def scheduled(folder: Path) -> float | None:
    """Return the rate of the next update, from the scheduler beside the checkpoint in a folder."""
    if not (path := folder / SCHEDULER).is_file():
        return None
    try:
        rate = float(_plain(path)["_last_lr"][0])
    # A broken file raises many types of errors.
    except Exception:
        return None
    return rate if isfinite(rate) else None


class _Plain(pickle._Unpickler):
    """Reads numbers, texts and containers. Without classes and functions, a file runs no code. That
    in Python, unlike that in C, reserves no memory for what a file only announces."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name}")


def _plain(path: Path) -> Mapping[str, Any]:
    """Return what torch saved. Plain content is read without torch, whose import takes a second."""
    try:
        with ZipFile(path) as file:
            [entry] = (entry for entry in file.infolist() if entry.filename.endswith("/data.pkl"))
            if entry.file_size > LARGEST:
                raise Problem(f"{path} has {entry.file_size:,} bytes of content")
            with file.open(entry) as content:
                return dict(_Plain(content).load())
    except (BadZipFile, pickle.UnpicklingError):
        import torch

        # torch also reads its own types and its old format, and refuses what could run code.
        return torch.load(path, map_location="cpu", weights_only=True)


def in_table(path: str, steps: Iterable[int]) -> dict[int, float]:
    """Return the rates by step of a CSV file, and those at `steps` between its rows, interpolated.
    Raises `Problem` if the file has no such columns."""
    import numpy as np

    try:
        rows = dict[int, float]()
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            for row in csv.DictReader(file):
                step, rate = int(row["step"]), float(row["lr"])
                # A decimal comma makes one more column.
                if None in row or not 0 <= rate < inf or rows.setdefault(step, rate) != rate:
                    raise ValueError(f"step {step} must have one rate, finite and not negative")
        if not rows:
            raise ValueError("it has no rows")
    except (OSError, LookupError, ValueError, TypeError, OverflowError, csv.Error) as error:
        raise Problem(f"{path} is not a CSV file with the columns step and lr ({error})") from None
    known = sorted(rows)
    within = [step for step in steps if known[0] <= step <= known[-1]]
    values = np.interp(within, known, [rows[step] for step in known]).tolist()
    return rows | dict(zip(within, values, strict=True))


def rates_and_phases(rates: Mapping[int, float]) -> RatesAndPhases:
    """Return rate and phase by step. The stable phase holds the peak rate of two known steps or
    more, before the rate falls for the first time."""
    steps = sorted(rates)
    if len(steps) < 2:
        return {step: (rates[step], UNKNOWN) for step in steps}
    changes = {after: _change(rates[before], rates[after]) for before, after in pairwise(steps)}
    fall = min((step for step, change in changes.items() if change < 0), default=inf)
    peak = max(rates[step] for step in steps if step < fall)
    held = [step for step in steps if step < fall and _change(peak, rates[step]) == 0]
    # What rises up to its end may still be in its warmup.
    alone = "decay" if fall < inf else UNKNOWN
    before, decay = ("stable", "cooldown") if len(held) > 1 else (alone, "decay")
    known, later = RatesAndPhases(), decay
    for step in steps:
        if step >= fall and (change := changes[step]):
            later = RESTART if change > 0 else decay
        early = "warmup" if step < held[0] else before
        known[step] = rates[step], early if step < fall else later
    return known


def _change(before: float, after: float) -> float:
    return 0.0 if isclose(before, after, rel_tol=ROUNDING) else after - before
