"""Claims and tables: the type of config/tables.yaml, and what their jobs are told."""

from typing import Annotated, Literal

from ptq_dynamics.base.fields import Once, Strict
from ptq_dynamics.figures.settings import Shown, ShownRun
from ptq_dynamics.measure.settings import Series

CLAIMS = "claims.json"
FOREST = "claims"  # the plot of all, a picture
Listed = Annotated[tuple[str, ...], Once]


class Told(Strict):
    """What the job of claims has to know of one: what it `says`, its seeds, the public models whose
    `miniatures` it is about, and why it is `unmeasured`, if it is."""

    says: str
    seeds: tuple[int, ...] = ()
    miniatures: tuple[str, ...] = ()
    unmeasured: str | None = None


class Drawn(Strict):
    """What a figure is drawn from: its series and runs, and the calibration sets by quantizer."""

    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
    draws: dict[str, tuple[str, ...]]


class ClaimsSettings(Strict):
    """All claims by name, the figures that they read, and the scale's name."""

    claims: dict[str, Told]
    figures: dict[str, Drawn]
    scale: str


class TableQuery(Strict):
    """A table: of `claims`, a row for every number; or a row for every trajectory of some
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


class TableRow(Strict):
    """A trajectory in a table: label of its curve, name, seeds, and draws by quantizer."""

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
    """All tables, the series that they read, and the runs they are of."""

    tables: tuple[Filled, ...]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
