"""Settings of the stages that judge claims and write tables, as they cross the job border."""

from dataclasses import dataclass
from typing import Literal

from ptq_dynamics.figures.settings import Shown, ShownRun
from ptq_dynamics.measure.settings import Series

CLAIMS = "claims.json"
# The formats of a table.
FORMATS = ("csv", "md", "tex")

Take = Literal["mean", "largest", "smallest"]


@dataclass(frozen=True)
class At:
    """Where along a trajectory it is read: at a `share` of its own tokens, or at those with which
    the shortest of `tokens_of` ends; from `first` on where it is read at all points between, up to
    a `share` of either; along it and its trunk at the loss in full precision that the worst of
    `loss_of` ends with; or before or after the greatest `rise` of that."""

    share: float = 1.0
    first: float | None = None
    tokens_of: tuple[str, ...] = ()
    loss_of: tuple[str, ...] = ()
    rise: Literal["before", "after"] | None = None


@dataclass(frozen=True)
class Term:
    """A number that is read from trajectories, or from one: a metric there, under the quantizer
    whose `draws` these are (none: in full precision); with `against`, instead the rank correlation
    of both over the checkpoints read; `less` another term, and `per` another one."""

    of: tuple[str, ...]
    at: At
    take: Take
    metric: str
    draws: tuple[str, ...]
    against: str | None = None
    less: "Term | None" = None
    per: "Term | None" = None


@dataclass(frozen=True)
class Inequality:
    """`left` is above, or below, `times` what is `right`, with a `tolerance` as a share of that;
    `published` are both sides in the
    paper; its quantizers look at a calibration set where they are `calibrated`; `missing` says why
    it cannot be measured."""

    says: str
    figure: str
    quantizer: str | None
    metric: str
    left: Term | None
    above: bool
    right: Term | float
    times: float
    tolerance: float
    because: str | None
    published: tuple[float, float] | None
    seeds: tuple[int, ...]
    calibrated: bool
    missing: str | None


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, by its number there where it has one; `miniatures` are the public
    models whose miniatures stand in for them."""

    name: str
    number: int | None
    says: str
    inequalities: tuple[Inequality, ...]
    miniatures: tuple[str, ...]


@dataclass(frozen=True)
class Branched:
    """A run that leaves its `trunk` at the step `at`."""

    name: str
    trunk: str
    at: int


@dataclass(frozen=True)
class ClaimsSettings:
    """All claims, the series that they read, the runs of which they read training curves, which
    runs branch off which, and the scale's name."""

    claims: tuple[Claim, ...]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
    branches: tuple[Branched, ...]
    scale: str


@dataclass(frozen=True)
class Row:
    """A trajectory in a table: what its curve is called, its name, and its seeds; a branch `starts`
    where the phase before it ends."""

    curve: str
    name: str
    seeds: tuple[int, ...]
    starts: bool


@dataclass(frozen=True)
class Column:
    """A quantizer in a table, and the draws of it by trajectory."""

    shown: Shown
    draws: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class TableSettings:
    """A table: its `kind`, rows and quantizers; `level`: the trajectories at whose worst last loss
    rows are read too (none: they are not)."""

    name: str
    title: str
    kind: Literal["runs", "tasks", "claims"]
    rows: tuple[Row, ...] = ()
    columns: tuple[Column, ...] = ()
    level: tuple[str, ...] = ()


@dataclass(frozen=True)
class TablesSettings:
    """All tables, the series that they read, which runs branch off which, and the scale's name."""

    tables: tuple[TableSettings, ...]
    series: tuple[Series, ...]
    branches: tuple[Branched, ...]
    scale: str
