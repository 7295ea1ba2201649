"""Types of config/quantizers.yaml."""

from ptq_dynamics.quantize.methods import Calibrated as Calibrated
from ptq_dynamics.quantize.quantizers import AnyQuantizer as Quantizer

__all__ = ["Calibrated", "Quantizer"]
