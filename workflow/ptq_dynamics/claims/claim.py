"""The type of a claim, and of the numbers that belong to it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class Row(NamedTuple):
    """A number of a claim: its description, its sample (`samples.Samples`), the published value if
    there is one, and its unit. A ratio has no unit."""

    says: str
    sample: Any
    published: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper. The first line of the docstring of `read` states it. The first row that
    `read` yields, a ratio, decides. The paper claims that it is `above` or `below` 1, or `alike`:
    within the factor `margin` of 1. `in_small` is the reason if miniatures cannot test the
    claim."""

    read: Callable[[Any], Iterator[Row]]
    direction: Literal["above", "below", "alike"]
    figures: tuple[str, ...]
    number: int | None = None
    margin: float = 1.0
    in_small: str | None = None

    @property
    def name(self) -> str:
        """The name of `read`, with hyphens."""
        return self.read.__name__.replace("_", "-")

    @property
    def says(self) -> str:
        """The statement of the paper."""
        return (self.read.__doc__ or "").partition("\n")[0].rstrip(".")
