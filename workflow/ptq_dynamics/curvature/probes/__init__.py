"""Probes of the Hessian, one module each: an entry of a scale's file, settings, and columns."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, get_args

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Count, Strict
from ptq_dynamics.measure.metrics import Column


class ProbeSettings(Strict):
    """The Hessian on `sequences` probes of `context` tokens; `tolerance` is a relative residual."""

    checkpoints: tuple[str, ...]
    context: int
    sequences: int
    batch: int
    keep_graph: bool
    tolerance: float
    max_iterations: int
    seed: int


class Probe(Strict):
    """A probe, which takes the last checkpoint of a shard, and one in `every`. The function `run`
    of its `stage` gets `settings`: those that all probes share, and the probe's own fields."""

    columns: ClassVar[tuple[Column, ...]]
    stage: ClassVar[str]
    settings: ClassVar[type[ProbeSettings]] = ProbeSettings

    kind: str
    every: Count = 1

    @classmethod
    def label(cls) -> str:
        """Return the kind, with which labels and folders of results begin."""
        return str(get_args(cls.model_fields["kind"].annotation)[0])

    @classmethod
    def measured(cls) -> set[str]:
        """Return the names of the metrics that figures may name."""
        return {column.name for column in cls.columns}

    def own(self) -> Mapping[str, Any]:
        """Return the fields of this kind of probe alone; their types are its own."""
        return self.model_dump(exclude={"kind", "every"})


AnyProbe = Annotated[Probe, OneOf(__name__, by="kind")]
