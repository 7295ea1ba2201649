"""Claims and tables: the types of config/claims.yaml and config/tables.yaml, and what their jobs
are told."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ptq_dynamics.base.fields import Once, Strict
from ptq_dynamics.figures.settings import Shown, ShownRun
from ptq_dynamics.measure.names import Metric
from ptq_dynamics.measure.settings import Series

CLAIMS = "claims.json"
# The formats of a table.
FORMATS = ("csv", "md", "tex")
# How far quantization moves the weights, ‖Θ − Θ̂‖.
DISTANCE: Final = "weight_distance"


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


ClaimMetric = Literal[Metric, "weight_distance"]
Part = Annotated[float, Field(ge=0, le=1)]
# A number, and no truth value.
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Names = Annotated[
    tuple[str, ...], BeforeValidator(_several, json_schema_input_type=str | list[str])
]
Listed = Annotated[tuple[str, ...], Once]


class Term(Strict):
    """A number that is read from one trajectory, or from several (`take`: their mean, largest or
    smallest), where the label of a curve stands for its trajectories: the inequality's metric under
    its quantizer.

    It is read `at` a share of the tokens (0: the start, 1: the end); at equal tokens, where the
    shortest of some trajectories ends (`tokens_of`); at equal loss, that in full precision with
    which the worst of some ends (`loss_of`), along a run and its trunk, for the last time where
    they have it more than once; at all points `over` two shares of the tokens, or of those of
    `tokens_of`; or at the checkpoint before or after the greatest `rise` of the loss in full
    precision from one checkpoint to the next.

    `against`: the rank correlation with another metric, over the checkpoints read. From what is
    read, another term is taken away (`less`), and it is divided by another one (`per`)."""

    of: Annotated[Names, Field(min_length=1)]
    at: Part = 1.0
    tokens_of: Names = ()
    loss_of: Names = ()
    over: tuple[Part, Part] | None = None
    rise: Literal["before", "after"] | None = None
    take: Literal["mean", "largest", "smallest"] = "mean"
    against: ClaimMetric | None = None
    less: "Term | None" = None
    per: "Term | None" = None

    @model_validator(mode="after")
    def _is_read_in_one_way(self) -> Self:
        given = {"at": self.at != 1, "tokens_of": self.tokens_of, "loss_of": self.loss_of}
        given |= {"over": self.over, "rise": self.rise}
        ways = [key for key, value in given.items() if value]
        if self.against is not None and ways not in ([], ["over"]):
            raise ValueError(f"has against with {ways[0]}; give over, or none (at the end)")
        if len(ways) > 1 and ways != ["tokens_of", "over"]:
            raise ValueError(f"has {' and '.join(ways)}; give one, or over with tokens_of")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The trajectories at whose tokens or loss it reads, and those it reads."""
        return (*self.tokens_of, *self.loss_of, *self.of)

    @property
    def parts(self) -> "Iterator[Term]":
        """It, and all terms that it is less or per."""
        yield self
        for each in (self.less, self.per):
            if each is not None:
                yield from each.parts


class Inequality(Strict):
    """`left` is above or below `times` what is `right`, with `tolerance` as a share of that, both
    for a reason (`because`); once under each quantizer (none: in full precision), and for
    `each` name in place of `{each}`, or, where there is a `{next}`, for each and the next.
    It reads what `figures` show, or the claim's figure. `published`: both sides in the paper, for
    each of these. `unmeasured_in_small`: why nothing can be measured for it where miniatures stand
    for public models.

    Planning makes single ones of it, with their seeds, the `draws` that the scale takes of the
    quantizer, whether that is calibrated, the public models whose `miniatures` it reads, and why it
    is `unmeasured`."""

    says: str
    figures: Listed = ()
    metric: ClaimMetric = "quantization_error"
    quantizers: Listed = ()
    each: Listed = ()
    left: Term
    relation: Literal["above", "below"] = "above"
    right: Term | Finite
    times: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.0
    because: str | None = None
    published: tuple[tuple[Finite, Finite] | None, ...] = ()
    unmeasured_in_small: str | None = None
    unmeasured: str | None = None
    seeds: tuple[int, ...] = ()
    draws: tuple[str, ...] = ()
    calibrated: bool = False
    miniatures: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.times != 1 or self.tolerance) and self.because is None:
            raise ValueError("has times or tolerance without because; say why")
        if len(self.published) not in (0, count := len(self._ways)):
            raise ValueError(
                f"published has {len(self.published)} pairs for {count} inequalities; give each "
                "its own (null: none)"
            )
        return self

    @property
    def quantizer(self) -> str | None:
        """The quantizer of a single inequality."""
        return self.quantizers[0] if self.quantizers else None

    @property
    def terms(self) -> list[Term]:
        """All its terms."""
        sides = [side for side in (self.left, self.right) if isinstance(side, Term)]
        return [part for side in sides for part in side.parts]

    @property
    def _ways(self) -> list[tuple[tuple[str, ...], str]]:
        """The quantizer, and the text with names filled in, of everything that it stands for."""
        text = self.model_dump_json(exclude={"quantizers", "each", "published"})
        names = [*pairwise(self.each)] if "{next}" in text else [(name, "") for name in self.each]
        quantizers: list[tuple[str, ...]] = [(name,) for name in self.quantizers]
        return [
            (own, text.replace("{each}", name).replace("{next}", following))
            for own in quantizers or [()]
            for name, following in names or [("", "")]
        ]

    def single(self) -> Iterator["Inequality"]:
        """The inequalities that it stands for, each under one quantizer, with names filled in."""
        for place, (quantizers, text) in enumerate(self._ways):
            update = {"quantizers": quantizers, "published": self.published[place : place + 1]}
            yield Inequality.model_validate_json(text).model_copy(update=update)


class Claim(Strict):
    """What the paper says of a figure, with its `number` in the list of claims, if it is in that,
    and the inequalities that have to hold for it."""

    number: Annotated[int, Field(ge=1)] | None = None
    says: str
    figure: str
    inequalities: Annotated[tuple[Inequality, ...], Field(min_length=1)]


class ClaimsSettings(Strict):
    """All claims by name, in their order, which a mapping loses on its way to a job; the series and
    runs that they read; and the scale's name."""

    claims: tuple[tuple[str, Claim], ...]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
    scale: str


class TableQuery(Strict):
    """A table: of `claims`, a row for every inequality; or a row for every trajectory of some
    figures, or for those alone that branch off others (`branches`). Of `runs`: the tokens, and the
    loss in full precision and the errors under their quantizers where a run branches off and at its
    end; `equal_loss`: also where they have the loss that the worst of them ends with; `quantizers`:
    those under which all rows are measured, also where no figure asks for it, in a build of all
    figures. Of `tasks`: accuracies at the end, and how much of them is lost."""

    kind: Literal["runs", "tasks", "claims"]
    title: str
    figures: Listed = ()
    branches: bool = False
    equal_loss: bool = False
    quantizers: Listed = ()


class Row(Strict):
    """A trajectory in a table: what its curve is called, its name, its seeds, and by quantizer the
    draws of it."""

    curve: str
    name: str
    seeds: tuple[int, ...]
    draws: dict[str, tuple[str, ...]]


class Filled(Strict):
    """A table with its rows and quantizers."""

    name: str
    table: TableQuery
    rows: tuple[Row, ...] = ()
    columns: tuple[Shown, ...] = ()


class TablesSettings(Strict):
    """All tables, the series that they read, and the runs they are of."""

    tables: tuple[Filled, ...]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
