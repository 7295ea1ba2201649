"""What a claim is: one estimand of a figure, what the paper has of it, and what stands beside."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class Row(NamedTuple):
    """One number of a claim: what it is, its sample (`samples.Samples`), the published value where
    there is one. `unit` of a difference; a ratio has none."""

    says: str
    sample: Any
    published: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Claim:
    """What the paper says of some figures, in the first line of the docstring of `read`. The first
    row that this yields, a ratio, decides: it is claimed to be `above` or `below` 1, or `alike`,
    within the factor `margin` of 1. The other rows stand beside it and decide nothing. `number` is
    that of the list of claims; `in_small` says why miniatures of public models cannot show it."""

    read: Callable[[Any], Iterator[Row]]
    direction: Literal["above", "below", "alike"]
    figures: tuple[str, ...]
    number: int | None = None
    margin: float = 1.0
    in_small: str | None = None

    @property
    def name(self) -> str:
        """As functions are called, with hyphens."""
        return self.read.__name__.replace("_", "-")

    @property
    def says(self) -> str:
        """What the paper says."""
        return (self.read.__doc__ or "").partition("\n")[0].rstrip(".")
