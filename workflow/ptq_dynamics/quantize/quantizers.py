"""Any quantizer, whatever its method, as configuration and settings of jobs hold it."""

from typing import TYPE_CHECKING

from ptq_dynamics.base.components import union
from ptq_dynamics.quantize.methods import Quantizer

if TYPE_CHECKING:
    AnyQuantizer = Quantizer
else:
    AnyQuantizer = union("ptq_dynamics.quantize.methods", Quantizer, by="method")
