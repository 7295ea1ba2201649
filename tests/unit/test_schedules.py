"""Learning-rate schedules against properties and closed forms."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.train.schedules import (
    Constant,
    Cosine,
    Schedule,
    Wsd,
    learning_rate,
    phase,
)
from pydantic import TypeAdapter

peaks = st.floats(1e-6, 1.0)
lengths = st.integers(1, 400)
floors = st.floats(0.0, 1.0)
SHAPES = ("linear", "1-sqrt")


@st.composite
def cooldowns(draw):
    peak, warmup = draw(peaks), draw(st.integers(1, 50))
    start = warmup + draw(st.integers(0, 200))
    return Wsd(
        kind="wsd",
        peak=peak,
        warmup=warmup,
        floor=peak * draw(floors),
        start=start,
        length=draw(lengths),
        shape=draw(st.sampled_from(SHAPES)),
    )


@st.composite
def cosines(draw):
    peak, warmup = draw(peaks), draw(st.integers(1, 50))
    stop = warmup + draw(lengths)
    floor = peak * draw(floors)
    return Cosine("cosine", peak=peak, warmup=warmup, floor=floor, stop=stop)


def end(schedule):
    return schedule.stop if isinstance(schedule, Cosine) else schedule.start + schedule.length


def rates(schedule, extra=5):
    return [learning_rate(schedule, step) for step in range(end(schedule) + extra)]


@given(cooldowns() | cosines())
def test_rates_stay_between_zero_and_peak_and_fall_after_the_warmup(schedule):
    found = rates(schedule)
    peak, warmup = schedule.peak, schedule.warmup
    assert max(found) <= peak * (1 + 1e-15), max(found)
    after = found[warmup:]
    assert min(after) >= schedule.floor * (1 - 1e-15), (min(after), schedule)
    assert min(found[:warmup]) > 0
    rises = [i for i, (a, b) in enumerate(pairwise(after)) if b > a]
    assert not rises, f"rises after step {warmup + rises[0]}"


@given(cooldowns() | cosines())
def test_warmup_is_linear_and_ends_at_the_peak(schedule):
    peak, warmup = schedule.peak, schedule.warmup
    found = [learning_rate(schedule, step) for step in range(warmup)]
    assert found == pytest.approx([peak * k / warmup for k in range(1, warmup + 1)], rel=1e-14)
    assert found[-1] == pytest.approx(peak, rel=1e-15)
    assert learning_rate(schedule, warmup) == pytest.approx(peak, rel=1e-15)


@given(cooldowns() | cosines(), st.integers(0, 1000))
def test_the_floor_is_reached_exactly_at_the_end_and_kept(schedule, beyond):
    last = end(schedule)
    assert learning_rate(schedule, last) == schedule.floor
    assert learning_rate(schedule, last + beyond) == schedule.floor
    if schedule.floor < schedule.peak * 0.999:
        assert learning_rate(schedule, last - 1) > schedule.floor


@given(cooldowns())
def test_a_cooldown_follows_its_closed_form(schedule):
    peak, floor = schedule.peak, schedule.floor
    start, length = schedule.start, schedule.length
    for k in range(length + 1):
        left = 1 - k / length if schedule.shape == "linear" else 1 - (k / length) ** 0.5
        expected = peak * left + floor * (1 - left)
        assert learning_rate(schedule, start + k) == pytest.approx(expected, rel=1e-9, abs=1e-18), k


@given(cosines())
def test_a_cosine_follows_its_closed_form(schedule):
    peak, floor, warmup = schedule.peak, schedule.floor, schedule.warmup
    length = schedule.stop - warmup
    for k in range(length + 1):
        # cos² of half the angle, another form of the half cosine.
        share = math.cos(math.pi * k / length / 2) ** 2
        expected = peak * share + floor * (1 - share)
        assert learning_rate(schedule, warmup + k) == pytest.approx(expected, rel=1e-9, abs=1e-17)


@given(cooldowns(), st.floats(0.0, 1.0))
def test_a_branch_has_its_trunks_rates_up_to_the_branching_step(schedule, share):
    trunk = Constant("constant", schedule.peak, schedule.warmup)
    step = round(share * schedule.start)
    assert learning_rate(schedule, step) == pytest.approx(learning_rate(trunk, step), rel=1e-15)


def test_the_papers_rates():
    warm = Constant("constant", peak=3e-3, warmup=1900)
    assert learning_rate(warm, 0) == pytest.approx(3e-3 / 1900)
    assert [learning_rate(warm, step) for step in (1899, 1900, 190_000)] == [3e-3] * 3
    rainbow = Wsd("wsd", 3e-3, 1900, floor=0.0, start=36_000, length=18_000, shape="linear")
    found = [learning_rate(rainbow, step) for step in (35_999, 36_000, 45_000, 54_000)]
    assert found == pytest.approx([3e-3, 3e-3, 1.5e-3, 0.0])
    cosine = Cosine("cosine", peak=6e-4, warmup=200, floor=6e-5, stop=20_200)
    assert learning_rate(cosine, 10_200) == pytest.approx(3.3e-4)


def test_phases():
    schedule = Wsd("wsd", peak=1.0, warmup=2, floor=0.0, start=5, length=3, shape="linear")
    expected = ["warmup"] * 2 + ["stable"] * 3 + ["cooldown"] * 4
    assert [phase(schedule, step) for step in range(9)] == expected
    assert phase(Constant("constant", peak=1.0, warmup=2), 9) == "stable"
    assert phase(Cosine("cosine", peak=1.0, warmup=2, floor=0.0, stop=9), 2) == "decay"


crossing = TypeAdapter(Schedule)


@given(cooldowns() | cosines())
def test_a_schedule_crosses_the_border_of_jobs_unchanged(schedule):
    constant = Constant("constant", schedule.peak, schedule.warmup)
    for one in (schedule, constant):
        found = crossing.validate_json(crossing.dump_json(one))
        assert (type(found), found) == (type(one), one)
