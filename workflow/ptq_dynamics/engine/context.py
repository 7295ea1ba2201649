"""The settings, inputs and folders that a stage gets."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TextIO, TypeVar

from ptq_dynamics.engine.manifest import Manifest

S = TypeVar("S", covariant=True)


@dataclass
class Progress:
    """Lines of progress on the terminal and in the job's log."""

    name: str
    log: TextIO | None = None
    interval: float = 5.0
    _last: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Print one line."""
        self._last = time.monotonic()
        for stream in filter(None, (sys.stderr, self.log)):
            # One call, because concurrent jobs share the stream.
            stream.write(f"{self.name}: {text}\n")
            stream.flush()

    def maybe(self, text: str) -> None:
        """Print one line unless another was printed in the last few seconds."""
        if time.monotonic() - self._last >= self.interval:
            self.say(text)


@dataclass
class Context(Generic[S]):
    """One job as its stage sees it."""

    name: str
    settings: S  # of the type that the stage's `run` names: `context: Context[Settings]`
    inputs: Mapping[str, list[Manifest]]  # by label
    out: Path  # its files become the result; empty at first, unless the stage is RESUMABLE
    scratch: Path  # for state that survives an interruption
    progress: Progress
    earlier: Path | None = None  # folder of the job's last result; equal files may be linked
    identity: str = ""  # hex digest of everything that the result depends on

    def input(self, label: str) -> Manifest:
        """Return the only manifest under `label`."""
        (manifest,) = self.inputs[label]
        return manifest
