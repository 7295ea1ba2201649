"""Settings of the stage that typesets the paper, as they cross the job border."""

from dataclasses import dataclass

PAPER = "paper.pdf"
DATA = "data.json"


@dataclass(frozen=True)
class Source:
    """A file of the text, relative to its folder, and the digest of what it says."""

    name: str
    digest: str


@dataclass(frozen=True)
class FigureEntry:
    """A figure by its name; `without` are the trajectories that this scale leaves out of it;
    `missing` says why it is not drawn, where it is not."""

    name: str
    title: str
    caption: str
    without: tuple[str, ...]
    missing: str | None


@dataclass(frozen=True)
class TableEntry:
    """A table by the stem of its files."""

    name: str
    title: str


@dataclass(frozen=True)
class Beside:
    """A number of a run here and in the paper, as far as each is known, and whether they are not
    alike."""

    mine: float | None
    theirs: float | None
    unlike: bool


@dataclass(frozen=True)
class RegimeRow:
    """A run's numbers without dimension, in the order of the columns."""

    run: str
    cells: tuple[Beside, ...]


@dataclass(frozen=True)
class PaperSettings:
    """What the text is told of the configuration: the scale's name and description, and whether
    miniatures stand in for public models; the figures, in the order of the configuration, whether
    drawn or not; the tables; numbers by key; the scale's settings, by key; the `columns` of the
    regime and its rows; and the text itself, by digest."""

    scale: str
    description: str
    miniatures: bool
    figures: tuple[FigureEntry, ...]
    tables: tuple[TableEntry, ...]
    numbers: tuple[tuple[str, str], ...]
    configuration: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    regime: tuple[RegimeRow, ...]
    sources: tuple[Source, ...]
