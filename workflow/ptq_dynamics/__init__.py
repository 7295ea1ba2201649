"""Training dynamics and post-training quantization robustness: the stages of the workflow."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptq_dynamics.cli.callback import MeasureCallback as MeasureCallback
    from ptq_dynamics.report.notebook import measurements as measurements

__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    if name == "MeasureCallback":
        from ptq_dynamics.cli.callback import MeasureCallback

        return MeasureCallback
    if name != "measurements":
        raise AttributeError(name)
    from ptq_dynamics.report.notebook import measurements

    return measurements
