"""Figure 10: the rainbow under several quantizers."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ptq_dynamics.figures.curves import Curves, footer
from ptq_dynamics.figures.panels import Panel, draw, save
from ptq_dynamics.jobs.context import Context

NAMES = {"gptq": "GPTQ", "awq": "AWQ", "int8": "LLM.int8", "nf4": "NF4", "rtn": "Rounding"}


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure, a panel for every quantizer."""
    curves = Curves(context)
    panels, parts = [], []
    for name, (quantizer, settings) in zip("abcdef", curves.quantizers.items(), strict=False):
        method = NAMES.get(settings["method"], settings["method"])
        title = f"({name}) {method}, {settings['bits']} bit"
        panels.append(Panel.over_tokens(name, title, "Quantization error (%)", percent_y=True))
        parts += [
            curves.against_tokens(name, "quantization_error", quantizer),
            curves.learning_rates(name),
        ]
    table = pd.concat(parts)
    save(draw(table, panels, curves.labels, footer(context)), table, context.out, context.name)
    return {"points": len(table)}
