"""The rule of verdicts."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.claims.estimates import Estimate, independent
from ptq_dynamics.claims.judge import SEEN, Verdict, of_claim, of_inequality, over_seeds

VALUES = st.floats(-1e6, 1e6)
ERRORS = st.floats(0, 1e6)
N, I, M, R = Verdict  # noqa: E741


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(2.01, R), (2.0, I), (0.0, I), (-2.0, I), (-2.01, N), (math.nan, M), (math.inf, M)],
)
def test_an_effect_is_seen_from_two_errors_on(value, verdict):
    assert of_inequality(value, 1.0) is verdict
    assert SEEN == 2


@pytest.mark.parametrize("value", [1.0, 0.0, -1.0])
def test_where_no_error_is_known_nothing_is_concluded(value):
    alone = over_seeds([Estimate(value)])
    assert alone.error is None and of_inequality(value, alone.error) is I
    # Seeds give one, even where they agree.
    agreed = over_seeds([Estimate(value), Estimate(value)])
    assert of_inequality(value, agreed.error) is {1.0: R, 0.0: I, -1.0: N}[value]
    assert of_inequality(value, 0.6) is I


@given(VALUES, ERRORS, ERRORS)
def test_a_larger_effect_is_reproduced_where_a_smaller_one_is(value, error, more):
    before, after = (of_inequality(each, error) for each in (value, value + more))
    assert [N, I, R].index(after) >= [N, I, R].index(before)


@given(VALUES, ERRORS)
def test_the_claim_and_its_contrary_are_never_both_reproduced(value, error):
    assert of_inequality(-value, error) is {R: N, N: R, I: I}[of_inequality(value, error)]


def test_seeds_give_their_mean_the_error_that_they_share_and_their_spread():
    text = [independent(value, 0.5, "text") for value in (1.0, 2.0, 6.0)]
    found = over_seeds(text)
    assert found.value == pytest.approx(3)
    assert found.stderr == pytest.approx(0.5)
    assert found.spread == pytest.approx(statistics.stdev([1, 2, 6]))
    assert found.error == found.spread
    alone = over_seeds(text[:1])
    assert alone.spread is None and alone.error == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [([R, R], R), ([R, N, I, M], N), ([R, I, M], I), ([R, M], M), ([M, M], M), ([], M)],
)
def test_a_claim_needs_all_its_inequalities(verdicts, verdict):
    assert of_claim(verdicts) is verdict
