"""The leading eigenvalues of the Hessian (figure 9)."""

from typing import ClassVar, Literal

from ptq_dynamics.base.fields import Count
from ptq_dynamics.curvature.probes import Probe, ProbeSettings
from ptq_dynamics.measure.metrics import Column
from ptq_dynamics.measure.names import EIGENVALUES


class SpectrumSettings(ProbeSettings):
    """The `eigenvalues` eigenvalues of largest magnitude."""

    eigenvalues: int


class Spectrum(Probe):
    """The `eigenvalues` eigenvalues of largest magnitude."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column(EIGENVALUES, "Leading eigenvalues", "Magnitude (nats)"),
    )
    stage: ClassVar[str] = "curvature.spectrum"
    settings: ClassVar[type[ProbeSettings]] = SpectrumSettings

    kind: Literal["spectrum"]
    eigenvalues: Count
