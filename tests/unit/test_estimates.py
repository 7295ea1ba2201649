"""Estimates and their errors, each against another way to compute it."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.claims.estimates import (
    Estimate,
    at_level,
    correlation,
    independent,
    of_parts,
    over_draws,
    selection,
)
from ptq_dynamics.measure.correlation import spearman

TEXT = "text"
BLOCKS = 400


def blocks(seed, *, levels, noise=0.05, common=0.5):
    """Losses of blocks at some levels; they have ten times more in common than each of its own."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, common, BLOCKS)
    return [level + shared + rng.normal(0, noise, BLOCKS) for level in levels]


def resampled(statistic, *samples, tries=2000):
    """Standard deviation of a statistic of the means, over resamples of blocks."""
    rng = np.random.default_rng(7)
    draws = rng.integers(BLOCKS, size=(tries, BLOCKS))
    table = np.stack(samples)
    return np.std([statistic(*table[:, draw].mean(axis=1)) for draw in draws], ddof=1)


def test_a_difference_is_paired_by_block():
    one, other = blocks(1, levels=[3.0, 3.1])
    found = of_parts(other, TEXT) - of_parts(one, TEXT)
    differences = [b - a for a, b in zip(one.tolist(), other.tolist(), strict=True)]
    assert found.value == pytest.approx(statistics.mean(differences))
    assert found.stderr == pytest.approx(statistics.stdev(differences) / math.sqrt(BLOCKS))
    apart = of_parts(other, "another text") - of_parts(one, TEXT)
    assert apart.stderr > 5 * found.stderr


def test_the_error_of_a_ratio_is_that_of_resampled_blocks():
    one, other = blocks(2, levels=[3.0, 3.3])
    found = of_parts(other, TEXT) / of_parts(one, TEXT)
    assert found.value == pytest.approx(other.mean() / one.mean())
    assert found.stderr == pytest.approx(resampled(lambda a, b: b / a, one, other), rel=0.1)


NUMBERS = st.floats(-1e3, 1e3)
SAMPLES = st.lists(NUMBERS, min_size=5, max_size=5).map(np.array)


@given(SAMPLES, SAMPLES, NUMBERS)
def test_estimates_add_as_their_blocks_do(one, other, factor):
    found = of_parts(one, TEXT) + of_parts(other, TEXT) * Estimate(factor)
    whole = of_parts(one + other * factor, TEXT)
    assert found.value == pytest.approx(whole.value, abs=1e-6)
    assert found.stderr == pytest.approx(whole.stderr, rel=1e-9, abs=1e-6)
    assert (of_parts(one, TEXT) - of_parts(one, TEXT)).stderr == 0


def test_draws_give_their_mean_and_the_error_of_it():
    each = [independent(value, 0.3, TEXT) for value in (1.0, 2.0, 6.0)]
    found = over_draws(each, "draws")
    assert found.value == pytest.approx(3)
    spread = statistics.stdev([1, 2, 6]) / math.sqrt(3)
    assert found.stderr == pytest.approx(math.hypot(0.3, spread))
    assert over_draws(each[:1], "draws").stderr == pytest.approx(0.3)


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_the_most_extreme_of_equal_values_lies_out_by_its_selection(count):
    drawn = np.random.default_rng(3).normal(0, 2.0, (40_000, count)).max(axis=1).mean()
    assert selection(count, 2.0, "taken").stderr == pytest.approx(drawn, abs=0.06)


# Interpolation


@given(st.floats(1, 3), st.floats(-5, 5))
def test_the_error_of_a_straight_line_through_a_parabola_is_how_far_that_bends(x, bend):
    xs = [0.0, 1.0, 3.0, 4.0]
    curve = [Estimate(bend * x**2 + x) for x in xs]
    found = at_level([Estimate(x) for x in xs], curve, Estimate(x), "bend")
    assert found.stderr == pytest.approx(abs(found.value - (bend * x**2 + x)), abs=1e-9)


def test_a_level_counts_where_it_was_for_the_last_time():
    xs, ys = [Estimate(x) for x in (4, 2, 3, 1)], [Estimate(y) for y in (0, 10, 20, 30)]
    assert at_level(xs, ys, Estimate(2.5), "bend").value == pytest.approx(22.5)
    assert at_level(xs, ys, Estimate(0.9), "bend") is None
    assert at_level(xs[:1], ys[:1], Estimate(4), "bend") is None


def test_points_that_almost_coincide_bend_a_curve_no_more_than_they_differ():
    xs, ys = [Estimate(x) for x in (4, 3 + 1e-9, 3, 2)], [Estimate(y) for y in (0, 5, 0, 1)]
    assert at_level(xs, ys, Estimate(2.5), "bend").stderr == pytest.approx(5)


def test_the_error_at_equal_loss_is_that_of_resampled_blocks():
    """The loss that one run ends with, and the error of another there, both from the same text."""
    level, high, low, *quantized = blocks(5, levels=[3.25, 3.4, 3.2, 3.42, 3.26])

    def read(level, high, low, before, after):
        share = (level - high) / (low - high)
        first, last = before / high - 1, after / low - 1
        return first + share * (last - first)

    def error(full, found):
        return of_parts(found, TEXT) / of_parts(full, TEXT) - Estimate(1.0)

    xs = [of_parts(high, TEXT), of_parts(low, TEXT)]
    ys = [error(high, quantized[0]), error(low, quantized[1])]
    found = at_level(xs, ys, of_parts(level, TEXT), "bend")
    samples = (level, high, low, *quantized)
    assert found.value == pytest.approx(read(*(each.mean() for each in samples)))
    assert found.stderr == pytest.approx(resampled(read, *samples), rel=0.1)


# Ranks


def test_ranks_without_ties_follow_the_closed_form():
    rng = np.random.default_rng(4)
    x, y = rng.permutation(12), rng.permutation(12)
    closed = 1 - 6 * int(((x - y) ** 2).sum()) / (12 * (12**2 - 1))
    assert spearman(x, y) == pytest.approx(closed)


def test_the_error_of_a_correlation_leaves_out_a_run_at_a_time():
    rng = np.random.default_rng(6)
    groups = [rng.normal(size=(n, 2)) for n in (4, 5, 6)]
    found = correlation(groups, "runs")
    without = [
        spearman(*np.concatenate([g for j, g in enumerate(groups) if j != i]).T) for i in range(3)
    ]
    jackknife = math.sqrt(2 / 3 * sum((w - statistics.mean(without)) ** 2 for w in without))
    assert found.value == pytest.approx(spearman(*np.concatenate(groups).T))
    assert found.stderr == pytest.approx(jackknife)
    assert math.isnan(correlation(groups[:2], "runs").value)


@pytest.mark.parametrize("lost", [float("nan"), float("inf")])
def test_a_neighbour_that_diverged_tells_nothing_of_a_bend(lost):
    """The other neighbour still does."""
    xs = [Estimate(x) for x in (0.0, 1.0, 2.0, 3.0)]
    rows = ((0.0, 1.0, 4.0, 9.0), (0.0, 1.0, 4.0, lost))
    whole, part = (at_level(xs, [*map(Estimate, y)], Estimate(1.5), "bend") for y in rows)
    assert part.value == whole.value and part.stderr == whole.stderr > 0
