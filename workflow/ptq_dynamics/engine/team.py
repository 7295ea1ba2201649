"""The processes that do one job together."""

from dataclasses import dataclass
from typing import Literal

Sharding = Literal["none", "full"]


@dataclass(frozen=True)
class Team:
    """How many processes of one machine do a job, and what of the weights each shares out with the
    others: none, so that it has all, or all of them (`full`)."""

    count: int = 1
    sharding: Sharding = "none"

    def __str__(self) -> str:
        shared = ", weights shared out" if self.sharding == "full" else ""
        return f"{self.count} process{'es' if self.count > 1 else ''}{shared}"


@dataclass(frozen=True)
class Processes:
    """Of a job that was not done by one process alone: the team that finished it, after those of
    earlier tries that it went on from; and the module with which a team does the stage's work, by
    the digest of all its code, of which the specification does not know. The last bits of results
    depend on these."""

    teams: tuple[Team, ...]
    module: str
    code: str
