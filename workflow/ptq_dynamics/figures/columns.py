"""The columns of probes and metrics that figures may name, found by their folders."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from ptq_dynamics.base.components import kinds_in
from ptq_dynamics.curvature.probes import Probe
from ptq_dynamics.measure.metrics import Column, ModelMetric


@cache
def owners() -> dict[str, type[Probe | ModelMetric]]:
    """Return the probes and metrics of models by the names of their columns."""
    # Not the modules: a digest of code would count everything in them.
    bases = (Probe, ModelMetric)
    kinds = [kind for base in bases for kind in kinds_in(base.__module__, base)]
    return {column.name: kind for kind in kinds for column in kind.columns}


@cache
def columns() -> dict[str, Column]:
    """Return the columns of all probes and metrics of models, by name."""
    return {column.name: column for kind in owners().values() for column in kind.columns}


@dataclass(frozen=True)
class OrColumn:
    """Annotates a literal type of names with those of columns in addition."""

    def __get_pydantic_core_schema__(
        self, base: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return handler.generate_schema(Literal[base, *columns()])
