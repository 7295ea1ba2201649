"""Extra figure: quantization error against sharpness and trace, with their rank correlation."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from scipy.stats import bootstrap, spearmanr

from ptq_dynamics.figures.curves import Curves, footer
from ptq_dynamics.figures.panels import HEIGHT, WIDTH, plain_log_ticks, save
from ptq_dynamics.figures.style import LINES, SETTINGS
from ptq_dynamics.jobs.context import Context

PANELS = {"sharpness": "Top Hessian eigenvalue", "hessian_trace": "Hessian trace"}
RESAMPLES = 2000


def run(context: Context) -> Mapping[str, Any]:
    """Stage: draw the figure; facts: Spearman's ρ with its 95 % bootstrap interval."""
    curves = Curves(context)
    ((quantizer, settings),) = curves.quantizers.items()
    key = ["curve", "segment", "x"]
    error = curves.against_tokens("", "quantization_error", quantizer).set_index(key)
    sns.set_theme(style="ticks", rc=SETTINGS)
    figure, axes = plt.subplots(
        1, len(PANELS), figsize=(WIDTH * len(PANELS), HEIGHT), layout="constrained"
    )
    parts, facts = [], {}
    for ax, (metric, label) in zip(axes, PANELS.items(), strict=True):
        flatness = curves.against_tokens(metric, metric, None).set_index(key)
        table = flatness[["panel", "y"]].rename(columns={"y": "x"})
        table = table.join(error[["y", "low", "high"]], how="inner")
        table = table.reset_index(["curve", "segment"]).reset_index(drop=True)
        table = table[(table.x > 0) & table.y.notna()]
        rho, low, high = rank_correlation(table.x.to_numpy(), table.y.to_numpy())
        facts[metric] = {"rho": rho, "low": low, "high": high, "points": len(table)}
        for name, line in zip(curves.labels, LINES, strict=False):
            part = table[table.curve == name]
            spread = [part.y - part.low, part.high - part.y]
            look = {"color": line.color, "marker": line.marker, "elinewidth": 0.6}
            ax.errorbar(part.x, part.y, yerr=spread, linestyle="none", label=name, **look)
        ax.set_xscale("log")
        plain_log_ticks(ax.xaxis)
        ax.yaxis.set_major_formatter("{x:.2%}")
        ax.set(xlabel=label, ylabel=f"{settings['bits']}-bit quantization error (%)")
        ax.set_title(f"Spearman ρ = {rho:.2f} [{low:.2f}, {high:.2f}], n = {len(table)}")
        parts.append(table)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.suptitle(footer(context), x=0.995, ha="right", fontsize=7, color="0.35")
    save(figure, pd.concat(parts), context.out, context.name)
    return facts


def rank_correlation(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Spearman's ρ of two samples [n], and its 95 % percentile-bootstrap interval over pairs.

    Checkpoints of one run are not independent, so the interval is a lower bound of the doubt.
    """
    result = bootstrap(
        (x, y),
        lambda a, b: spearmanr(a, b).statistic,
        paired=True,
        vectorized=False,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    interval = result.confidence_interval
    return float(spearmanr(x, y).statistic), float(interval.low), float(interval.high)
