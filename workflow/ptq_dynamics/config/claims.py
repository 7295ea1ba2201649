"""Types of config/claims.yaml: what the paper says, as inequalities over the queries of figures."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from ptq_dynamics.base.fields import Once, Strict
from ptq_dynamics.claims.names import DISTANCE, ClaimMetric
from ptq_dynamics.config.names import DISTINCT, Name
from ptq_dynamics.measure.names import FULL_PRECISION, PROBES, QUANTIZED
from ptq_dynamics.train.settings import TRAINING

Part = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# A number, and no truth value.
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Names = Annotated[tuple[str, ...], Field(min_length=1), Once]
# What stands for a name of `each`, or for neighbours in `along`.
PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Place(Strict):
    """Where a trajectory is read: at equal tokens, where another one ends, or the shortest of
    several (`tokens_of`); at equal loss, that in full precision with which the worst of some
    trajectories ends (`loss_of`), along a run and its trunk, for the last time where they have it
    more than once; at all points from one share of its tokens to another (`start`, `end`), or, with
    `tokens_of`, of those; or at the checkpoint before or after the greatest rise of its loss in
    full precision from one checkpoint to the next (`rise`)."""

    tokens_of: str | Names | None = None
    loss_of: Names | None = None
    start: Part | None = None
    end: Part = 1.0
    rise: Literal["before", "after"] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        kinds = [self.tokens_of, self.loss_of, self.start, self.rise]
        stretch = self.start is not None and self.tokens_of is not None
        if sum(kind is not None for kind in kinds) != 1 + stretch:
            raise ValueError("must have one of tokens_of, loss_of, start and rise")
        if self.start is None and self.end != 1:
            raise ValueError(f"end is {self.end:g}, which counts with start alone; give one")
        if self.start is not None and self.start >= self.end:
            raise ValueError(f"start is {self.start:g}, which is not before end ({self.end:g})")
        return self

    @property
    def ends(self) -> tuple[str, ...]:
        """Names of the trajectories of whose ends the first counts."""
        return (self.tokens_of,) if isinstance(self.tokens_of, str) else self.tokens_of or ()


class Term(Strict):
    """A number that is read from one trajectory, or from several (`take`: their mean, largest or
    smallest), where the label of a curve stands for the trajectories of it that a scale has: the
    inequality's metric under its quantizer, or one of its own (`fp`: full precision); `against`:
    the rank correlation with another metric, over the checkpoints read; then `less` another term,
    and `per` another."""

    of: str | Names
    at: Literal["start", "end"] | Part | Place = "end"
    take: Literal["mean", "largest", "smallest"] = "mean"
    metric: ClaimMetric | None = None
    quantizer: str | None = None
    against: ClaimMetric | None = None
    less: "Term | None" = None
    per: "Term | None" = None

    @model_validator(mode="after")
    def _correlates_points(self) -> Self:
        stretch = isinstance(self.at, Place) and self.at.start is not None
        if self.against is not None and self.at != "end" and not stretch:
            raise ValueError(
                "against goes with at: end, or with a stretch, whose checkpoints it takes"
            )
        return self

    @property
    def trajectories(self) -> tuple[str, ...]:
        """Names of the trajectories that it is read from."""
        return (self.of,) if isinstance(self.of, str) else self.of

    @property
    def others(self) -> tuple[str, ...]:
        """Names of those that say where."""
        if not isinstance(self.at, Place):
            return ()
        return self.at.loss_of or self.at.ends

    @property
    def parts(self) -> "list[Term]":
        """It, and all terms that it is less or per."""
        return [self, *(p for each in (self.less, self.per) if each for p in each.parts)]


class Inequality(Strict):
    """`left` is above or below `times` what is `right`, with `tolerance` as a share of that, both
    for a reason (`because`); once under each quantizer, for `each` trajectory in place of `{each}`,
    or for neighbours in `along` in place of `{one}` and `{next}`. It reads what the claim's figure
    shows, or another one's, or `also` a second one's. `published`: both sides in the paper, for
    each of these. `unmeasured`: why nothing here can be measured for it; `unmeasured_in_small`: why
    not where miniatures stand for public models."""

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

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.unmeasured is None and (self.left is None or self.right is None):
            raise ValueError("has no left or no right; state both, or unmeasured with the reason")
        if self.unmeasured is not None and (self.left is not None or self.right is not None):
            raise ValueError("has unmeasured and a left or right; leave one out")
        if (self.times != 1 or self.tolerance) and self.because is None:
            raise ValueError("has times or tolerance without because; say why")
        if self.each and self.along:
            raise ValueError("has each and along; take one")
        if len(self.along) == 1:
            raise ValueError("along has one trajectory, which has no neighbour; name two or more")
        count = len(self._ways())
        if self.published and len(self.published) != count:
            raise ValueError(
                f"published has {len(self.published)} pairs for {count} inequalities; give each "
                "its own (null: none)"
            )
        self.single()
        return self

    def _ways(self) -> list[tuple[str | None, Mapping[str, str]]]:
        """The quantizer, and the names to be filled in, of everything that it stands for."""
        names: list[Mapping[str, str]] = [{}]
        if self.each:
            names = [{"each": name} for name in self.each]
        elif self.along:
            pairs = zip(self.along, self.along[1:], strict=False)
            names = [{"one": one, "next": following} for one, following in pairs]
        return [(name, given) for name in self.quantizers or (None,) for given in names]

    def single(self) -> "list[Single]":
        """The inequalities that it stands for."""
        ways = self._ways()
        published = self.published or (None,) * len(ways)
        return [
            Single(
                name,
                _filled(self.says, given),
                None if self.left is None else _term(self.left, given),
                _term(self.right, given) if isinstance(self.right, Term) else self.right or 0.0,
                pair,
            )
            for (name, given), pair in zip(ways, published, strict=True)
        ]


@dataclass(frozen=True)
class Single:
    """One of the inequalities that an `Inequality` stands for: under a quantizer, with the names
    filled in."""

    quantizer: str | None
    says: str
    left: Term | None
    right: Term | float
    published: tuple[float, float] | None

    @property
    def terms(self) -> list[Term]:
        """All its terms."""
        sides = [side for side in (self.left, self.right) if isinstance(side, Term)]
        return [part for side in sides for part in side.parts]


class Claim(Strict):
    """What the paper says of a figure, with its `number` in the list of claims, if it is in that,
    and the inequalities that have to hold for it."""

    number: Annotated[int, Field(ge=1)] | None = None
    says: str
    figure: str
    inequalities: Annotated[tuple[Inequality, ...], Field(min_length=1)]


Claims = Annotated[dict[Name, Claim], DISTINCT]


def quantized(metric: str, quantizer: str | None) -> str | None:
    """The quantizer under which a metric is measured: of the loss the one that is named, of what
    quantization does one always, of the rest none."""
    of_runs = [*TRAINING, *(name for found in PROBES.values() for name in found)]
    return None if quantizer == FULL_PRECISION or metric in of_runs else quantizer


def needs_quantizer(metric: str) -> bool:
    """Whether a metric is of quantized weights alone."""
    return metric in QUANTIZED or metric == DISTANCE


def _filled(text: str, given: Mapping[str, str]) -> str:
    return PLACEHOLDER.sub(lambda at: given.get(at[1], at[0]), text)


def _term(term: Term, given: Mapping[str, str]) -> Term:
    try:
        return Term.model_validate(_replaced(term.model_dump(), given))
    except ValidationError as error:
        said = error.errors()[-1]["msg"].removeprefix("Value error, ")
        named = " and ".join(given.values())
        raise ValueError(f"with {named} filled in, one of its sides {said}") from None


def _replaced(content: Any, given: Mapping[str, str]) -> Any:
    match content:
        case str():
            return _filled(content, given)
        case dict():
            return {key: _replaced(value, given) for key, value in content.items()}
        case list() | tuple():
            return [_replaced(value, given) for value in content]
    return content
