"""Learning-rate schedules against properties and closed forms."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.train.schedules.constant import Constant
from ptq_dynamics.train.schedules.cosine import Cosine
from ptq_dynamics.train.schedules.stage import StageSchedule
from ptq_dynamics.train.schedules.wsd import Wsd


@st.composite
def schedules(draw):
    peak, warmup, length = (
        draw(each) for each in (st.floats(1e-6, 1.0), st.integers(1, 50), st.integers(1, 400))
    )
    floor = peak * draw(st.floats(0.0, 1.0))
    if draw(st.booleans()):
        return Cosine(kind="cosine", peak=peak, warmup=warmup, floor=floor, stop=warmup + length)
    start, shape = warmup + draw(st.integers(0, 200)), draw(st.sampled_from(("linear", "1-sqrt")))
    warm = {"kind": "wsd", "peak": peak, "warmup": warmup}
    return Wsd(**warm, floor=floor, start=start, length=length, shape=shape)


@given(schedules(), st.integers(0, 1000))
def test_rates_follow_their_closed_forms(schedule, beyond):
    peak, floor, warmup = schedule.peak, schedule.floor, schedule.warmup
    cosine = isinstance(schedule, Cosine)
    start, last = (
        (warmup, schedule.stop) if cosine else (schedule.start, schedule.start + schedule.length)
    )
    found = [schedule.learning_rate(step) for step in range(last + 1)]
    expected = [peak * step / warmup for step in range(1, warmup + 1)]
    expected += [peak] * (start - warmup)
    for step in range(start, last + 1):
        done = (step - start) / (last - start)
        if cosine:
            # cos² of half the angle, another form of the half cosine.
            left = math.cos(math.pi * done / 2) ** 2
        else:
            left = 1 - done if schedule.shape == "linear" else 1 - done**0.5
        expected.append(peak * left + floor * (1 - left))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-17)
    assert max(found) <= peak * (1 + 1e-15)
    assert all(b <= a for a, b in pairwise(found[warmup:]))
    assert found[-1] == schedule.learning_rate(last + beyond) == floor


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
