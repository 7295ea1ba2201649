"""Claims and tables: the types of config/claims.yaml and config/tables.yaml, and what their jobs
are told."""

import re
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
# How far quantization moves the weights, ‖Θ − Θ̂‖, and the fact of a landscape that says so.
DISTANCE: Final = "weight_distance"
DISTANCE_FACT = "distance_quantized"
# What stands for a name of `each`, or for neighbours in `along`.
PLACEHOLDER = re.compile(r"\{(\w+)\}")

ClaimMetric = Literal[Metric, "weight_distance"]


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _place(value: Any) -> Any:
    if isinstance(value, str):
        if value not in ("start", "end"):
            raise ValueError("must be 'start', 'end', a share or a mapping")
        return {"end": float(value == "end")}
    return {"end": value} if isinstance(value, int | float) else value


Part = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# A number, and no truth value.
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Names = Annotated[
    tuple[str, ...], BeforeValidator(_several, json_schema_input_type=str | list[str]), Once
]
Some = Annotated[Names, Field(min_length=1)]


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
        tokens, others = bool(self.tokens_of), bool(self.loss_of) + (self.rise is not None)
        if others + tokens > 1 or (others and self.start is not None):
            raise ValueError("must have one of tokens_of, loss_of, start and rise")
        if self.start is None and self.end != 1 and tokens + others:
            raise ValueError(f"end is {self.end:g}, which counts with start alone; give one")
        if self.start is not None and self.start >= self.end:
            raise ValueError(f"start is {self.start:g}, which is not before end ({self.end:g})")
        return self


class Term(Strict):
    """A number that is read from one trajectory, or from several (`take`: their mean, largest or
    smallest), where the label of a curve stands for its trajectories: the inequality's metric under
    its quantizer, or one of its own (`fp`: full precision); `against`: the rank correlation with
    another metric, over the checkpoints read; then `less` another term, and `per` another.

    Planning puts trajectories in place of labels, and `draws` in place of the quantizer: those that
    the scale takes of it (none: in full precision)."""

    of: Some
    at: Annotated[Place, BeforeValidator(_place, json_schema_input_type=str | float | Place)] = (
        Place()
    )
    take: Literal["mean", "largest", "smallest"] = "mean"
    metric: ClaimMetric | Literal[""] = ""
    quantizer: str | None = None
    against: ClaimMetric | None = None
    draws: tuple[str, ...] = ()
    less: "Term | None" = None
    per: "Term | None" = None

    @model_validator(mode="after")
    def _correlates_points(self) -> Self:
        if self.against is not None and self.at.start is None and self.at != Place():
            raise ValueError(
                "against goes with at: end, or with a stretch, whose checkpoints it takes"
            )
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
    for a reason (`because`); once under each quantizer, for `each` trajectory in place of `{each}`,
    or for neighbours in `along` in place of `{one}` and `{next}`. It reads what the claim's figure
    shows, or another one's, or `also` a second one's. `published`: both sides in the paper, for
    each of these. `unmeasured`: why nothing here can be measured for it; `unmeasured_in_small`: why
    not where miniatures stand for public models.

    Planning makes single ones of it, with their seeds, and whether a quantizer is calibrated."""

    says: str
    figure: str | None = None
    also: str | None = None
    metric: ClaimMetric = "quantization_error"
    quantizers: Annotated[tuple[str, ...], Once] = ()
    each: Annotated[tuple[str, ...], Once] = ()
    along: Annotated[tuple[str, ...], Once] = ()
    left: Term | None = None
    relation: Literal["above", "below"] = "above"
    right: Term | Finite | None = None
    times: Positive = 1.0
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.0
    because: str | None = None
    published: tuple[tuple[Finite, Finite] | None, ...] = ()
    unmeasured: str | None = None
    unmeasured_in_small: str | None = None
    seeds: tuple[int, ...] = ()
    calibrated: bool = False

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.unmeasured is None and (self.left is None or self.right is None):
            raise ValueError("has no left or no right; state both, or unmeasured with the reason")
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
    def _ways(self) -> list[tuple[str | None, Mapping[str, str]]]:
        """The quantizer, and the names to be filled in, of everything that it stands for."""
        names: list[Mapping[str, str]] = [{"each": name} for name in self.each]
        names += [{"one": one, "next": following} for one, following in pairwise(self.along)]
        return [(name, given) for name in self.quantizers or (None,) for given in names or [{}]]

    def single(self) -> Iterator["Inequality"]:
        """The inequalities that it stands for, each under one quantizer, with names filled in."""
        content = self.model_dump(exclude={"quantizers", "each", "along", "published"})
        for place, (name, given) in enumerate(self._ways):
            pair = self.published[place : place + 1]
            own = {"quantizers": (name,) if name else (), "published": pair}
            try:
                yield Inequality.model_validate({**_filled(content, given), **own})
            except ValidationError as error:
                said = error.errors()[0]["msg"].removeprefix("Value error, ")
                named = " and ".join(given.values())
                raise ValueError(f"with {named} filled in, one of its sides {said}") from None


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
    """All claims, the series and runs that they read, and the scale's name."""

    claims: dict[str, Claim]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
    scale: str


class _OfFigures(Strict):
    title: str
    figures: Annotated[tuple[str, ...], Field(min_length=1), Once]


class RunsTable(_OfFigures):
    """A row for every trajectory of some figures, or for those alone that branch off others: its
    tokens, and the loss in full precision and the errors under their quantizers where it branches
    off and at its end; `equal_loss`: also where they have the loss that the worst of them ends
    with; `quantizers`: those under which all rows are measured, also where no figure asks for it,
    in a build of all figures."""

    kind: Literal["runs"]
    branches: bool = False
    equal_loss: bool = False
    quantizers: Annotated[tuple[str, ...], Once] = ()


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
    """All tables, the series that they read, the runs they are of, and the scale's name."""

    tables: tuple[Filled, ...]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
    scale: str


def _filled(content: Any, given: Mapping[str, str]) -> Any:
    """Plain content with names in place of placeholders."""
    match content:
        case str():
            return PLACEHOLDER.sub(lambda at: given.get(at[1], at[0]), content)
        case dict():
            return {key: _filled(value, given) for key, value in content.items()}
        case list() | tuple():
            return [_filled(value, given) for value in content]
    return content
