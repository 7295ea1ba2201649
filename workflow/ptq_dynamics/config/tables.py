"""Types of config/tables.yaml: tables of numbers, from the queries of figures."""

from typing import Annotated, Literal

from pydantic import Field

from ptq_dynamics.base.fields import Once, Strict
from ptq_dynamics.config.names import DISTINCT, Name


class _Table(Strict):
    title: str
    figures: Annotated[tuple[str, ...], Field(min_length=1), Once]


class RunsTable(_Table):
    """A row for every trajectory of some figures, or for those alone that branch off others: its
    tokens, and the loss in full precision and the errors under their quantizers where it branches
    off and at its end; `equal_loss`: also where they have the loss that the worst of them ends
    with; `quantizers`: those under which all rows are measured, also where no figure asks for it,
    in a build of all figures."""

    kind: Literal["runs"]
    branches: bool = False
    equal_loss: bool = False
    quantizers: Annotated[tuple[str, ...], Once] = ()


class TasksTable(_Table):
    """A row for every trajectory of some figures: accuracies at its end, and how much of them is
    lost under their quantizers."""

    kind: Literal["tasks"]


class ClaimsTable(Strict):
    """A row for every claim, and every inequality that it is split into."""

    kind: Literal["claims"]
    title: str


Table = Annotated[RunsTable | TasksTable | ClaimsTable, Field(discriminator="kind")]
Tables = Annotated[dict[Name, Table], DISTINCT]
