"""What the objectives of this folder are set to, one dataclass each, as it crosses the job
border: the planner fills it, and the module of the objective reads it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Nothing:
    """Of an objective that has nothing to set."""


@dataclass(frozen=True)
class Preferences:
    """Which of both anchored losses, and β."""

    anchor: Literal["zero", "down"]
    beta: float
