"""What every objective answers, and the one that a run has."""

from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.settings import TrainSettings, read


class Data(Protocol):
    """The batches of a run."""

    def at(self, step: int) -> Tensor:
        """That of the update after `step` updates: its first dimension can be split."""


class Objective(Protocol):
    """What a batch costs."""

    def loss(self, forward: nn.Module, part: Tensor, whole: Tensor) -> Tensor:
        """What a part of the batch `whole` adds to its mean loss, 0-dimensional."""


def data(corpus: Manifest, settings: TrainSettings) -> Data:
    """The batches of a run on a corpus."""
    found: Data = _kind(settings).data(corpus, settings)
    return found


def make(settings: TrainSettings, start: Path | None) -> Objective:
    """The objective of a run that begins with the weights of the checkpoint `start`, if any."""
    kind = _kind(settings)
    found: Objective = kind.Objective(read(kind.Settings, settings.objective.settings), start)
    return found


def _kind(settings: TrainSettings) -> Any:
    return import_module(f"ptq_dynamics.train.objectives.{settings.objective.module}")
