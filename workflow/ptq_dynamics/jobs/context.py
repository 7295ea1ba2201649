"""What a stage is given: its settings, its inputs, and a folder to write to."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TextIO, TypeVar

from ptq_dynamics.jobs.manifest import Manifest


@dataclass
class Progress:
    """Plain progress lines, on the terminal and in the job's log, at most one every few seconds."""

    name: str
    log: TextIO | None = None
    interval: float = 5.0
    _last: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Print one line now."""
        self._last = time.monotonic()
        for stream in filter(None, (sys.stderr, self.log)):
            # In one piece: jobs that run side by side share the stream.
            stream.write(f"{self.name}: {text}\n")
            stream.flush()

    def maybe(self, text: str) -> None:
        """Print one line unless another was printed a moment ago."""
        if time.monotonic() - self._last >= self.interval:
            self.say(text)


S = TypeVar("S", covariant=True)


@dataclass
class Context(Generic[S]):
    """One job as its stage sees it.

    `settings` is the frozen dataclass that the stage's `run` names: `context: Context[Settings]`;
    `inputs` maps a label to the manifests under it; `out` is an empty folder (or, for a stage with
    `RESUMABLE = True`, what an interrupted try left there) whose files become the result; `scratch`
    is for state that survives an interruption and is deleted afterwards; `earlier` is the folder of
    the job's last result, if there is one: what is provably the same may be linked from there.
    """

    name: str
    settings: S
    inputs: Mapping[str, list[Manifest]]
    out: Path
    scratch: Path
    progress: Progress
    earlier: Path | None = None

    def input(self, label: str) -> Manifest:
        """The only manifest under `label`."""
        (manifest,) = self.inputs[label]
        return manifest
