"""What is asked of the workflow: the types of config.yaml, backends.yaml and sweep.yaml."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ptq_dynamics.base.fields import Once, Seed, Strict
from ptq_dynamics.config.names import Name, Named


def _words(value: Any) -> Any:
    # From the command line: --config figures="fig04 fig06".
    return value.split() if isinstance(value, str) and value != "all" else value


def _numbers(value: Any) -> Any:
    # From the command line: more_seeds="102 103" is text, more_seeds=102 a number.
    if isinstance(value, str) and not all(word.isdecimal() for word in value.split()):
        raise ValueError("must be whole numbers with spaces between")
    return [value] if isinstance(value, int) else _words(value)


class Choice(Strict):
    """What to build: the scale, the seed of initial weights and data order, and further seeds of
    what headline figures show; the figures; and whether to look for damage at all bytes of
    results."""

    scale: Name
    seed: Seed
    more_seeds: Annotated[tuple[Seed, ...], BeforeValidator(_numbers), Once] = ()
    figures: Annotated[
        Literal["all"] | Annotated[list[str], Field(min_length=1)], BeforeValidator(_words)
    ]
    deep: bool = False

    @model_validator(mode="after")
    def _seeds_differ(self) -> Self:
        if self.seed in self.more_seeds:
            raise ValueError(f"more_seeds has {self.seed}, which is seed already; name it once")
        return self


class Sweep(Strict):
    """What `make sweep` trains: candidates for settings of a scale, each with what it changes in
    the scale's file, compared by the last losses of `runs`, and by whether `trunk` still learns."""

    scale: Name
    seed: Seed
    runs: Annotated[tuple[str, ...], Field(min_length=2), Once]
    trunk: str | None = None
    candidates: Annotated[Named[dict[str, Any]], Field(min_length=1)]


class Backends(Strict):
    """What `make backends` compares: groups of quantizers with equal settings, on the measured
    checkpoints of one trajectory."""

    trajectory: str
    groups: list[Annotated[list[str], Field(min_length=2)]]
