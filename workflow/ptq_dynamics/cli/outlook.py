"""`ptq-dynamics plan`: what a build takes, before anything is submitted."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.current import Results
from ptq_dynamics.engine.verified import Verifier
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.due import Due
from ptq_dynamics.graph.forecast import Forecast, Forecaster, Machine, OfKind
from ptq_dynamics.graph.measured import measure
from ptq_dynamics.graph.outlook import Outlook, look_ahead
from ptq_dynamics.graph.resources import Resources

HOUR, GIB = 3600, 2**30
LEAST = 0.001  # of what is printed
COLUMNS = ("kind", "due", "fresh", "core-h", "GPU-h", "estimated by")


@dataclass(frozen=True)
class Asked:
    """How many GPUs and cores there are, None if not said, and whether all is wanted as JSON."""

    gpus: int | None
    cores: int | None
    as_json: bool


def show(plan: Plan, asked: Asked) -> None:
    """Print jobs, time, room on the disk, downloads and what is left out."""
    machine = _machine(plan, asked)
    due = Due(plan.site, Results(Verifier(remembers=False)))
    fresh, stale = due.find(plan.last())
    measured = measure(plan.site.config)
    resources = Resources(plan.site.config, measured)
    forecast = Forecaster(plan.site, resources).of(fresh, stale, machine)
    downloads = look_ahead(plan.site, stale)
    left_out = {**plan.site.config.scale.regime.left_out, **plan.site.config.runs.unknown}
    if asked.as_json:
        known = {stage: asdict(found) for stage, found in measured.items()}
        content = _content(forecast, downloads) | {"measured": known, "left_out": left_out}
        print(json.dumps(content, indent=1, ensure_ascii=False))
        return
    number = len(fresh) + len(stale)
    print(f"{plan.site.config.scale.description}: {number:,} jobs, {len(stale):,} due")
    _tabulate(forecast)
    for line in (*_times(forecast), *_room(forecast), *_downloads(downloads)):
        print(line)
    for name, reason in left_out.items():
        print(f"left out: {name} ({reason})")


def _machine(plan: Plan, asked: Asked) -> Machine:
    """What is asked for, or a machine with the scale's device, or this one."""
    device = plan.site.config.scale.resources.device
    if device is None:
        if asked.gpus is not None:
            file = f"config/scales/{plan.site.config.choice.scale}.yaml"
            raise Problem(f"{file} has no resources.device; name one there, or say --cores")
        return Machine(0, asked.cores or os.cpu_count() or 1)
    return Machine(asked.gpus or device.per_machine, asked.cores or inf)


def _content(forecast: Forecast, downloads: Outlook) -> dict[str, Any]:
    machine = forecast.machine
    return {
        "jobs": {name: asdict(kind) for name, kind in forecast.kinds.items()},
        "gpu_jobs": forecast.gpu_jobs,
        "core_seconds": forecast.core_seconds,
        "gpu_seconds": forecast.gpu_seconds,
        "gpus": machine.gpus,
        "cores": None if machine.cores == inf else machine.cores,
        "seconds": forecast.seconds,
        "longest_chain_seconds": forecast.chain,
        "disk_bytes": {
            "before": round(forecast.before),
            "most": round(forecast.most),
            "after": round(forecast.after),
        },
        "downloads": {**asdict(downloads), "bytes": downloads.bytes},
    }


def _tabulate(forecast: Forecast) -> None:
    rows = [_row(name, kind) for name, kind in forecast.kinds.items()]
    counts = [
        sum(getattr(kind, key) for kind in forecast.kinds.values()) for key in ("due", "fresh")
    ]
    hours = forecast.core_seconds / HOUR, forecast.gpu_seconds / HOUR
    rows.append(("all", *(f"{count:,}" for count in counts), *map(_number, hours), ""))
    if sys.stdout.isatty():
        # Its import takes a while.
        from rich.console import Console
        from rich.table import Table

        table = Table()
        for number, name in enumerate(COLUMNS):
            table.add_column(name, justify="right" if 0 < number < len(COLUMNS) - 1 else "left")
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    for row in (COLUMNS, *rows):
        first, *numbers, last = (
            text.ljust(width) if number in (0, len(row) - 1) else text.rjust(width)
            for number, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join((first, *numbers, last)).rstrip())


def _row(name: str, kind: OfKind) -> tuple[str, ...]:
    both = {"records": kind.measured, "assumptions": kind.assumed}
    sources = [source for source, count in both.items() if count]
    due = f"{kind.due:,}" + (f" + {kind.again:,}" if kind.again else "")
    hours = kind.core_seconds / HOUR, kind.gpu_seconds / HOUR
    return (name, due, f"{kind.fresh:,}", *map(_number, hours), ", ".join(sources))


def _times(forecast: Forecast) -> Iterator[str]:
    machine = forecast.machine
    if any(kind.again for kind in forecast.kinds.values()):
        yield "after +: current results whose weights were dropped, and are made again for others"
    if machine.gpus:
        yield f"GPU jobs: {forecast.gpu_jobs:,}"
    there = [_many(machine.gpus, "GPU")] if machine.gpus else []
    there += [] if machine.cores == inf else [_many(machine.cores, "core")]
    yield (
        f"time on {' and '.join(there)}: {_hours(forecast.seconds)}; the longest chain of jobs "
        f"takes {_hours(forecast.chain)}"
    )


def _room(forecast: Forecast) -> Iterator[str]:
    most, after, before = (
        _gib(count) for count in (forecast.most, forecast.after, forecast.before)
    )
    yield f"disk: at most {most}, {after} in the end, {before} now"


def _downloads(found: Outlook) -> Iterator[str]:
    yield f"downloads: {_gib(found.bytes)}"
    if found.revisions:
        yield f"  {found.revisions:,} checkpoints: {_gib(found.locked_bytes)} by the lock"
    if found.unlocked:
        yield (
            f"  and about {_gib(found.estimated_bytes)}, estimated by parameters, of "
            f"{found.unlocked:,} that are not in the lock; run ptq-dynamics lock"
        )
    if found.tokens:
        yield (
            f"  {found.tokens:,} tokens of public text: about {_gib(found.text_bytes)}, estimated "
            f"by tokens; with {found.tokenizers} tokenizers"
        )
    if found.environments:
        yield f"  environments of tools, from the package index: {found.environments}"


def _many(count: float, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _hours(seconds: float) -> str:
    return f"{_number(seconds / HOUR)} h"


def _gib(count: float) -> str:
    return f"{_number(count / GIB)} GiB"


def _number(value: float) -> str:
    """With three digits, or two of what is less than one."""
    if value >= 1:
        return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"
    return f"{value:.2g}" if value >= LEAST else "0" if not value else f"< {LEAST}"
