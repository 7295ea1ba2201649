"""The ladder: numbers of claims over scales, and what two scales predict for a larger one."""

import json
from pathlib import Path

import numpy as np
import pytest
from ptq_dynamics.claims.definitions import CLAIMS, Ladder
from ptq_dynamics.claims.formats import as_csv, as_markdown
from ptq_dynamics.claims.ladder import ladder_table, plot, points
from ptq_dynamics.cli import outcomes
from ptq_dynamics.provenance import released
from support import ROOT

SIZES = {"small": 10_000, "middle": 100_000, "large": 10_000_000, "paper": 10**8}
LADDER = {
    "numbers": [
        {"claim": "rise", "number": "4-bit error", "label": "rise", "title": "Error / error"},
        {"claim": "rise", "number": "loss: a − b", "label": "gap", "title": "Gap"},
    ],
    "predictions": {"large": ["small", "middle"]},
    "published_at": "paper",
}


def claims(ratio, gap):
    number = {"unit": "", "published": 3.0, "value": ratio, "low": ratio / 1.1, "high": ratio * 1.1}
    other = {"says": "loss: a − b", "unit": "nats", "published": None, "value": gap}
    return [{"name": "rise", "rows": [{"says": "4-bit error", **number}, other]}]


def test_a_scale_is_predicted_by_the_line_through_two_smaller_ones():
    """Two more decades continue the law of one: ratios by their logarithms, nats as they are."""
    scales = {"small": claims(2.0, 0.1), "middle": claims(1.6, 0.07)}
    found = [*points(Ladder.model_validate(LADDER), SIZES, scales)]
    by_kind = {(p.label, p.kind, p.scale): p for p in found}
    ratio = by_kind["rise", "predicted", "large"]
    assert ratio.value == pytest.approx(2.0 * 0.8**3)
    # Independent errors of both scales, with the weights -2 and 3 of the line.
    half = np.log(1.1) * (2**2 + 3**2) ** 0.5
    assert [np.log(ratio.high / ratio.value), np.log(ratio.value / ratio.low)] == pytest.approx(
        [half, half]
    )
    gap = by_kind["gap", "predicted", "large"]
    assert gap.value == pytest.approx(0.1 - 3 * 0.03) and gap.low is None
    assert by_kind["rise", "published", "paper"].parameters == SIZES["paper"]
    panels = plot(found, Ladder.model_validate(LADDER)).axes
    drawn = [[*line.get_xdata()] for line in panels[0].lines]
    assert len(found) == 7 and len(panels) == 2
    assert [SIZES[scale] for scale in ("small", "middle", "large")] in drawn
    assert len(as_csv(ladder_table(found)).splitlines()) == 8


def test_a_measured_scale_keeps_its_prediction():
    scales = {name: claims(2.0, 0.1) for name in ("small", "middle", "large")}
    found = [*points(Ladder.model_validate(LADDER), SIZES, scales)]
    assert [p.kind for p in found if p.scale == "large"] == ["measured", "predicted"] * 2


def test_the_released_ladder_is_that_of_the_released_claims(monkeypatch):
    monkeypatch.chdir(ROOT)
    scales = outcomes.released_scales()
    places = {scale: Path(released.folders(scale)[0], CLAIMS) for scale in scales}
    every = {scale: json.loads(place.read_text())["claims"] for scale, place in places.items()}
    table = ladder_table(outcomes.rungs(every))
    assert Path(outcomes.TOGETHER, "ladder.csv").read_text() == as_csv(table)
    assert Path(outcomes.TOGETHER, "ladder.md").read_text() == as_markdown(table)
