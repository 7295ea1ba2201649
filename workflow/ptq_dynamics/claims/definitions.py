"""Claims, their outcomes as claims.json has them, tables, and the settings of their jobs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, NotRequired, TypedDict

from ptq_dynamics.base.fields import Once, Strict
from ptq_dynamics.figures.labels import Shown, ShownRun
from ptq_dynamics.measure.series import Series

if TYPE_CHECKING:
    from ptq_dynamics.claims.samples import Sample, Samples

CLAIMS = "claims.json"
FOREST = "claims"  # name of the plot of all claims, without suffix
Listed = Annotated[tuple[str, ...], Once]


class Row(NamedTuple):
    """A number of a claim: its description, its sample (`samples.Samples`), the published value if
    there is one, and its unit. A ratio has no unit. A `deployed` ratio, of perplexities after
    quantization, has an outcome of its own."""

    says: str
    sample: "Sample"
    published: float | None = None
    unit: str = ""
    deployed: bool = False


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, which the first line of the docstring of `read` states, and which plots
    call `short`. The first row of `read` is a ratio and decides: the paper claims that it is
    `above` or `below` 1, or `alike`, within the factor `margin` of 1. `in_small` says why
    miniatures cannot test the claim."""

    read: Callable[["Samples"], Iterator[Row]]
    short: str
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


class MeasuredRow(TypedDict):
    """A row in claims.json, with an interval if its error is known; `why` says what is unknown. An
    interval without `high` has no upper end. `smallest` is the smallest effect that its claim's
    test sees. `outcome` is that of a deployed row."""

    says: str
    unit: str
    published: float | None
    value: NotRequired[float]
    low: NotRequired[float]
    high: NotRequired[float]
    smallest: NotRequired[float]
    outcome: NotRequired[str]
    why: NotRequired[str]


class Judged(TypedDict):
    """A claim in claims.json. `seeds_needed` would decide a claim that is unresolved. `decides` are
    the ends of the interval of its first row in Holm's procedure, which excludes 1 if the claim is
    resolved."""

    name: str
    number: int | None
    says: str
    figures: list[str]
    about: list[str]  # the public models that miniatures replace
    rows: list[MeasuredRow]
    expected: str
    margin: float
    seeds: list[int]
    outcome: NotRequired[str]
    seeds_needed: NotRequired[int]
    decides: NotRequired[tuple[float, float]]
    why: NotRequired[str]


class ClaimAtScale(Strict):
    """A claim at one scale: the public models that `miniatures` replace, and the reason if the
    claim is `unmeasured`."""

    says: str
    seeds: tuple[int, ...] = ()
    miniatures: tuple[str, ...] = ()
    unmeasured: str | None = None


class Drawn(Strict):
    """The data of a figure: its series and runs, and its calibration sets by quantizer."""

    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
    draws: dict[str, tuple[str, ...]]


class ClaimsSettings(Strict):
    """All claims by name, the figures that the claims read, the scale's name, and numbers of runs
    by key, such as the paper's peak rates."""

    claims: dict[str, ClaimAtScale]
    figures: dict[str, Drawn]
    scale: str
    numbers: dict[str, dict[str, float]] = {}


class TableQuery(Strict):
    """A table. Kind `claims` has a row for each number of each claim. Other kinds have a row for
    each trajectory of some figures, or only for `branches`. Kind `runs` gives tokens, loss and
    errors at the branch point and at the end. `equal_loss` adds the errors at the highest final
    loss of the rows, and `carried` the loss that the blocks carry at the end. A build of all
    figures measures all rows under the `quantizers`. Kind `tasks` gives final accuracies and their
    degradation."""

    kind: Literal["runs", "tasks", "claims"]
    title: str
    figures: Listed = ()
    branches: bool = False
    equal_loss: bool = False
    carried: bool = False
    quantizers: Listed = ()


class TableRow(Strict):
    """A trajectory in a table. `draws` are the calibration sets by quantizer."""

    curve: str
    name: str
    seeds: tuple[int, ...]
    draws: dict[str, tuple[str, ...]]


class Filled(Strict):
    """A table with its rows and quantizers."""

    name: str
    table: TableQuery
    rows: tuple[TableRow, ...] = ()
    columns: tuple[Shown, ...] = ()


class TablesSettings(Strict):
    """All tables, and the series and runs that the tables read."""

    tables: tuple[Filled, ...]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]


class Rung(Strict):
    """A number of a claim, by its words, its label in the table, and its title in the plot."""

    claim: str
    number: str
    label: str
    title: str


class Ladder(Strict):
    """Numbers over scales, and for a larger scale the two that predict it. `published_at` is the
    scale of the published values."""

    numbers: tuple[Rung, ...]
    predictions: dict[str, tuple[str, str]]
    published_at: str
