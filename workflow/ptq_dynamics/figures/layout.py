"""What a panel of a figure is."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Panel:
    """One panel: labels with units; `tokens_x` and `percent_y` format the ticks; `zoom` shows what
    is left of it on the horizontal axis; `thin` draws many points or lines without markers; with
    `spikes`, what stands far above its neighbours does not set the scale; `crop` lets what comes
    before the first hundredth of the horizontal axis run out of the panel; `diagonal` draws the
    line on which both axes have one value; `widths` in points are those of curves that may lie on
    each other."""

    name: str
    title: str
    x: str
    y: str
    right: str | None = None
    tokens_x: bool = False
    percent_y: bool = False
    log_x: bool = False
    log_y: bool = False
    thin: bool = False
    spikes: bool = False
    crop: bool = False
    diagonal: bool = False
    zoom: float | None = None
    widths: Mapping[str, float] = field(default_factory=dict)
