"""The Hessian's eigenvalue of largest magnitude, and its trace (figures 9, 26)."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ptq_dynamics.curvature.probes import Probe, ProbeSettings
from ptq_dynamics.measure.metrics import Column
from ptq_dynamics.measure.names import SHARPNESS, TRACE


class SharpnessSettings(ProbeSettings):
    """Eigenvalue of largest magnitude, and the trace from `trace_samples` Rademacher vectors."""

    trace_samples: int


class Sharpness(Probe):
    """Eigenvalue of largest magnitude, and the trace from `trace_samples` Rademacher vectors."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column(SHARPNESS, "Sharpness", "Eigenvalue of largest magnitude (nats)"),
        Column(TRACE, "Trace", "Hessian trace (nats)"),
    )
    stage: ClassVar[str] = "curvature.sharpness"
    settings: ClassVar[type[ProbeSettings]] = SharpnessSettings

    kind: Literal["sharpness"]
    trace_samples: Annotated[int, Field(ge=2)]
