"""Claims and tables: the types of config/claims.yaml and config/tables.yaml, and what their jobs
are told."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

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


def _place(value: Any) -> Any:
    if isinstance(value, str):
        if value not in ("start", "end"):
            raise ValueError("must be 'start', 'end', a share or a mapping")
        return {"end": float(value == "end")}
    return {"end": value} if isinstance(value, int | float) else value


ClaimMetric = Literal[Metric, "weight_distance"]
Part = Annotated[float, Field(ge=0, le=1)]
# A number, and no truth value.
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Names = Annotated[
    tuple[str, ...], BeforeValidator(_several, json_schema_input_type=str | list[str]), Once
]
Listed = Annotated[tuple[str, ...], Once]


class Place(Strict):
    """Where a trajectory is read: at a share of its tokens (`end`); at equal tokens, where the
    shortest of some others ends (`tokens_of`); at equal loss, that in full precision with which the
    worst of some ends (`loss_of`), along a run and its trunk, for the last time where they have it
    more than once; at all points from one share of its tokens, or of those, to another (`start`,
    `end`); or at the checkpoint before or after the greatest `rise` of its loss in full precision
    from one checkpoint to the next."""

    tokens_of: Names = ()
    loss_of: Names = ()
    start: Part | None = None
    end: Part = 1.0
    rise: Literal["before", "after"] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        ways = (self.tokens_of, self.loss_of, self.rise)
        if sum(map(bool, ways)) > 1 or (self.start is not None and any(ways[1:])):
            raise ValueError("must have one of tokens_of, loss_of, start and rise")
        if any(ways) and self.start is None and self.end != 1:
            raise ValueError(f"end is {self.end:g}, which counts with start alone; give one")
        if self.start is not None and self.start >= self.end:
            raise ValueError(f"start is {self.start:g}, which is not before end ({self.end:g})")
        return self


class Term(Strict):
    """A number that is read from one trajectory, or from several (`take`: their mean, largest or
    smallest), where the label of a curve stands for its trajectories: the inequality's metric under
    its quantizer; `against`: the rank correlation with another metric, over the checkpoints read;
    then `less` another term, and `per` another."""

    of: Annotated[Names, Field(min_length=1)]
    at: Annotated[Place, BeforeValidator(_place, json_schema_input_type=str | float | Place)] = (
        Place()
    )
    take: Literal["mean", "largest", "smallest"] = "mean"
    against: ClaimMetric | None = None
    less: "Term | None" = None
    per: "Term | None" = None

    @model_validator(mode="after")
    def _correlates_points(self) -> Self:
        if self.against is not None and self.at.start is None and self.at != Place():
            raise ValueError("against goes with at: end, or with a stretch from start to end")
        return self

    @property
    def parts(self) -> "Iterator[Term]":
        """It, and all terms that it is less or per."""
        yield self
        for each in (self.less, self.per):
            if each is not None:
                yield from each.parts


class Inequality(Strict):
    """`left` is above or below `times` what is `right`, with `tolerance` as a share of that, both
    for a reason (`because`); once under each quantizer (none: in full precision), for `each`
    trajectory in place of `{each}`, or for neighbours in `along` in place of `{one}` and `{next}`.
    It reads what the claim's figure shows, or another one's, or `also` a second one's. `published`:
    both sides in the paper, for each of these. `unmeasured_in_small`: why nothing can be measured
    for it where miniatures stand for public models.

    Planning makes single ones of it, with their seeds, the `draws` that the scale takes of the
    quantizer, whether that is calibrated, and why it is `unmeasured`."""

    says: str
    figure: str | None = None
    also: str | None = None
    metric: ClaimMetric = "quantization_error"
    quantizers: Listed = ()
    each: Listed = ()
    along: Listed = ()
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

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.times != 1 or self.tolerance) and self.because is None:
            raise ValueError("has times or tolerance without because; say why")
        if len(self.published) not in (0, count := len(self._ways)):
            raise ValueError(
                f"published has {len(self.published)} pairs for {count} inequalities; give each "
                "its own (null: none)"
            )
        if len(self.along) == 1:
            raise ValueError("along has one trajectory, which has no neighbour; name two or more")
        if self.each or self.along:
            list(self.single())
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
    def _ways(self) -> list[tuple[tuple[str, ...], Mapping[str, str]]]:
        """The quantizer, and the names to be filled in, of everything that it stands for."""
        names: list[Mapping[str, str]] = [{"each": name} for name in self.each]
        names += [{"one": one, "next": following} for one, following in pairwise(self.along)]
        quantizers = [self.quantizers[at : at + 1] for at in range(max(len(self.quantizers), 1))]
        return [(own, given) for own in quantizers for given in names or [{}]]

    def single(self) -> Iterator["Inequality"]:
        """The inequalities that it stands for, each under one quantizer, with names filled in."""
        text = self.model_dump_json(exclude={"quantizers", "each", "along", "published"})
        for place, (own, given) in enumerate(self._ways):
            filled = text
            for key, name in given.items():
                filled = filled.replace(f"{{{key}}}", name)
            try:
                one = Inequality.model_validate_json(filled)
            except ValidationError as error:
                said = error.errors()[0]["msg"].removeprefix("Value error, ")
                named = " and ".join(given.values())
                raise ValueError(f"with {named} filled in, one of its sides {said}") from None
            pair = self.published[place : place + 1]
            yield one.model_copy(update={"quantizers": own, "published": pair})


class Claim(Strict):
    """What the paper says of a figure, with its `number` in the list of claims, if it is in that,
    and the inequalities that have to hold for it; planning finds the public models whose miniatures
    it is about."""

    number: Annotated[int, Field(ge=1)] | None = None
    says: str
    figure: str
    inequalities: Annotated[tuple[Inequality, ...], Field(min_length=1)]
    miniatures: tuple[str, ...] = ()


class ClaimsSettings(Strict):
    """All claims by name, in their order, which a mapping loses on its way to a job; the series and
    runs that they read; and the scale's name."""

    claims: tuple[tuple[str, Claim], ...]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
    scale: str


class _OfFigures(Strict):
    title: str
    figures: Annotated[Listed, Field(min_length=1)]


class RunsTable(_OfFigures):
    """A row for every trajectory of some figures, or for those alone that branch off others: its
    tokens, and the loss in full precision and the errors under their quantizers where it branches
    off and at its end; `equal_loss`: also where they have the loss that the worst of them ends
    with; `quantizers`: those under which all rows are measured, also where no figure asks for it,
    in a build of all figures."""

    kind: Literal["runs"]
    branches: bool = False
    equal_loss: bool = False
    quantizers: Listed = ()


class TasksTable(_OfFigures):
    """A row for every trajectory of some figures: accuracies at its end, and how much of them is
    lost under their quantizers."""

    kind: Literal["tasks"]


class ClaimsTable(Strict):
    """A row for every claim, and every inequality that it is split into."""

    kind: Literal["claims"]
    title: str


TableKind = Annotated[RunsTable | TasksTable | ClaimsTable, Field(discriminator="kind")]


class Row(Strict):
    """A trajectory in a table: what its curve is called, its name, its seeds, and by quantizer the
    draws of it; a branch `starts` where the phase before it ends."""

    curve: str
    name: str
    seeds: tuple[int, ...]
    starts: bool
    draws: dict[str, tuple[str, ...]]


class Filled(Strict):
    """A table with its rows and quantizers."""

    name: str
    table: TableKind
    rows: tuple[Row, ...] = ()
    columns: tuple[Shown, ...] = ()


class TablesSettings(Strict):
    """All tables, the series that they read, and the runs they are of."""

    tables: tuple[Filled, ...]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
