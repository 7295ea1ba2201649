"""What a stage is given: its settings, its inputs, and a folder to write to."""

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
    """Plain lines of progress, on the terminal and in the job's log."""

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
        """Print one line unless another was printed in the last few seconds."""
        if time.monotonic() - self._last >= self.interval:
            self.say(text)


@dataclass
class Context(Generic[S]):
    """One job as its stage sees it.

    `settings` has the type that the stage's `run` names: `context: Context[Settings]`; `inputs`
    are manifests by label; `out` is an empty folder (or, for a stage with `RESUMABLE = True`, what
    an interrupted try left there) whose files become the result; `scratch` is for state that
    survives an interruption; `earlier` is the folder of the job's last result, if any: what is
    provably the same may be linked from there; `identity` is the hex digest of all that the result
    depends on; `device_map` says how to spread a model that fits on no device, for accelerate.
    """

    name: str
    settings: S
    inputs: Mapping[str, list[Manifest]]
    out: Path
    scratch: Path
    progress: Progress
    earlier: Path | None = None
    identity: str = ""
    device_map: str = "auto"

    def input(self, label: str) -> Manifest:
        """The only manifest under `label`."""
        (manifest,) = self.inputs[label]
        return manifest
