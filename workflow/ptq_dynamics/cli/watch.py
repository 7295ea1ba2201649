"""`ptq-dynamics status --watch`: how far the builds in this folder have come, until they end."""

import signal
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.builds import FOLDER
from ptq_dynamics.engine.telling import shortened
from ptq_dynamics.engine.watching import Build, Reading, View, builds

if TYPE_CHECKING:
    from rich.console import Group

STATES = ("queued", "running", "done", "failed")
# Seconds between looks, on a terminal and in a log.
LIVE, PLAIN = 2.0, 30.0
# Lines of a terminal that jobs at work leave to the rest.
OTHERS = 14


def show(every: float | None) -> bool:
    """Show the builds that are at work until they end; whether all their jobs are done. Where none
    is, say so, and how the last one ended."""
    if every is not None and not every > 0:
        raise Problem(f"--every is {every}; give seconds, more than 0")
    at_work, last = builds(FOLDER)
    if not at_work:
        return _say_none(last)
    # On a terminal Ctrl-C has to leave it as it was.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    is_terminal = sys.stdout.isatty()
    try:
        _follow(at_work, every or (LIVE if is_terminal else PLAIN), is_terminal)
    except KeyboardInterrupt:
        print("no longer watched; the build goes on", flush=True)
        return False
    for build in at_work:
        print("\n".join(_outcome(build)), flush=True)
    return all(build.is_well for build in at_work)


def _say_none(last: Build | None) -> bool:
    said = "no build is at work in this folder"
    if last is None:
        print(said)
        return True
    last.follow()
    print(f"{said}; " + "\n".join(_outcome(last)))
    return last.is_well


def _follow(watched: Sequence[Build], every: float, is_terminal: bool) -> None:
    """Show them anew every so often until none is at work, and read what they noted last."""
    live = None
    if is_terminal:
        from rich.live import Live

        live = Live(auto_refresh=False)
    with live or nullcontext():
        while True:
            # Asked before the journal is read, so that its end is not missed.
            left = [build for build in watched if build.is_at_work]
            for build in watched:
                build.follow()
            if not left:
                return
            if live is not None:
                live.update(_table(left, live.console.height), refresh=True)
            else:
                print("\n".join(_lines(left)), flush=True)
            _wait(left, every)


def _wait(watched: Sequence[Build], seconds: float) -> None:
    """Wait so long, or until one of these has ended."""
    end = time.monotonic() + seconds
    while (rest := end - time.monotonic()) > 0 and all(build.is_at_work for build in watched):
        time.sleep(min(rest, 1.0))


def _outcome(build: Build) -> list[str]:
    """How a build has ended, and what failed."""
    view = build.view(at_work=False)
    how = "was killed"
    if build.has_ended:
        how = "is done" if build.is_well else "has failed" if view.failed else "was interrupted"
    return [f"the build of process {build.pid} {how}: {_counts(view)}", *_failures(view)]


def _counts(view: View) -> str:
    total = view.total
    parts = [f"{total['done']} of {total.total()} done"]
    parts += [
        f"{total[state]} {state}" for state in ("running", "queued", "failed") if total[state]
    ]
    parts.append(f"after {_time(view.seconds)}")
    if view.left is not None:
        parts.append(f"about {_time(view.left)} to go")
    return ", ".join(parts)


def _failures(view: View) -> list[str]:
    lines = []
    for each in view.failed:
        log = f" (log: {each.log})" if each.log else ""
        lines += [f"  {each.label}{log}", f"    {shortened(each.reason)}"]
    return lines


def _lines(watched: Sequence[Build]) -> list[str]:
    """For a log: a line for each build, below it one for each job at work."""
    lines = []
    for build in watched:
        view = build.view()
        lines.append(f"{time.strftime('%H:%M:%S')} process {build.pid}: {_counts(view)}")
        for each in view.running:
            host = f"on {each.host}" if each.host else ""
            parts = [f"for {_time(each.seconds)}", host, *_words(each.reading)]
            lines.append(f"  {each.label}: {', '.join(filter(None, parts))}")
    return lines


def _words(reading: Reading) -> list[str]:
    share, loss, rate, left = _cells(reading)
    named = ((share, ""), (loss, "loss "))
    return [
        *(f"{name}{cell}" for cell, name in named if cell),
        *([f"{rate} tokens/s"] if rate else []),
        *([f"{left} to go"] if left else []),
    ]


def _cells(reading: Reading) -> tuple[str, str, str, str]:
    """What is known of a job as text: its share or last line, loss, tokens a second, time to go."""
    loss = "" if reading.loss is None else f"{reading.loss:.3f}"
    rate = "" if reading.rate is None else f"{reading.rate:,.0f}"
    left = "" if reading.left is None else _time(reading.left)
    return reading.share or reading.text, loss, rate, left


def _table(watched: Sequence[Build], height: int) -> "Group":
    """For a terminal: a table of the jobs at work, one of the stages, and what failed."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Table | Text] = []
    for build in watched:
        view = build.view()
        parts.append(Text(f"process {build.pid}: {_counts(view)}", style="bold"))
        stages = Table("stage", box=None, pad_edge=False)
        for state in STATES:
            stages.add_column(state, justify="right")
        for stage, count in view.counts.items():
            stages.add_row(stage, *(str(count[state] or "") for state in STATES))
        most = max(3, height // len(watched) - OTHERS - len(view.counts))
        jobs = Table("job at work", "for", "where", "at", box=None, pad_edge=False)
        for name in ("loss", "tokens/s", "to go"):
            jobs.add_column(name, justify="right")
        for each in view.running[:most]:
            share, *numbers = _cells(each.reading)
            cells = (each.label, _time(each.seconds), each.host, share, *numbers)
            jobs.add_row(*map(Text, cells))
        parts += [stages, jobs]
        if len(view.running) > most:
            parts.append(Text(f"and {len(view.running) - most} more"))
        parts += [Text(line, style="red") for line in _failures(view)[-6:]]
    return Group(*parts)


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
