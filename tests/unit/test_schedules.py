"""Learning-rate schedules beside those of transformers, and in closed form."""

import math

import pytest
import torch
from ptq_dynamics.train.schedules.constant import Constant
from ptq_dynamics.train.schedules.cosine import Cosine
from ptq_dynamics.train.schedules.stage import StageSchedule
from ptq_dynamics.train.schedules.wsd import Wsd
from transformers import get_wsd_schedule


@pytest.mark.parametrize("floor", [0.0, 5e-4])
@pytest.mark.parametrize(("start", "length"), [(7, 1), (7, 90), (40, 60)])
@pytest.mark.parametrize("shape", ["linear", "1-sqrt", "cosine"])
def test_rates_are_those_of_transformers(shape, start, length, floor):
    own, last = {"peak": 2e-3, "warmup": 7, "floor": floor}, start + length
    if shape == "cosine":
        schedule, start = Cosine(kind="cosine", stop=last, **own), 7
    else:
        schedule = Wsd(kind="wsd", start=start, length=length, shape=shape, **own)
    steps = {"num_stable_steps": start - 7, "num_decay_steps": last - start}
    optimizer = torch.optim.SGD([torch.zeros(1)])
    theirs = get_wsd_schedule(optimizer, 7, **steps, decay_type=shape, min_lr_ratio=floor / 2e-3)
    (factor,) = theirs.lr_lambdas
    found = [schedule.learning_rate(step) for step in range(last + 9)]
    # Theirs has no rate, or the floor's, in the first update.
    assert found[:7] == pytest.approx([2e-3 * step / 7 for step in range(1, 8)])
    expected = [2e-3 * factor(step) for step in range(7, last + 9)]
    assert found[7:] == pytest.approx(expected, rel=1e-9, abs=1e-17)


def test_the_rate_of_a_stage_warms_up_and_falls_along_half_a_cosine():
    stage = StageSchedule(
        kind="stage", peak=2.0, warmup=4, floor=0.5, start=100, length=14, name="SFT"
    )
    rates = [stage.learning_rate(step) for step in range(100, 115)]
    assert rates[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]
    expected = [0.5 + 1.5 * (1 + math.cos(math.pi * done / 10)) / 2 for done in range(11)]
    assert rates[4:] == pytest.approx(expected)
    assert stage.phase(100) == stage.phase(114) == "SFT"


def test_phases():
    schedule = Wsd(kind="wsd", peak=1.0, warmup=2, floor=0.0, start=5, length=3, shape="linear")
    expected = ["warmup"] * 2 + ["stable"] * 3 + ["cooldown"] * 4
    assert [schedule.phase(step) for step in range(9)] == expected
    assert Constant(kind="constant", peak=1.0, warmup=2).phase(9) == "stable"
    assert Cosine(kind="cosine", peak=1.0, warmup=2, floor=0.0, stop=9).phase(2) == "decay"
