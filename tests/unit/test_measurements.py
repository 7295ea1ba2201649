"""Measurements: errors against a bootstrap, the schema, and exact round trips."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.measurements import COLUMNS, KEY

pytestmark = pytest.mark.slow


def losses():
    """Losses of the same blocks before and after quantization, as correlated as real ones are."""
    generator = np.random.default_rng(1)
    full = generator.normal(3.5, 0.4, 400)
    return [(full, full * generator.normal(1.02, 0.01, 400) + generator.normal(0, 0.01, 400))]


def answers():
    """Answers to some tasks in full precision and quantized, which are right together often."""
    random, found = np.random.default_rng(0), []
    for level, documents in ((0.4, 600), (0.6, 400), (0.75, 800)):
        full = random.random(documents) < level
        lost, won = random.random(documents) < 0.15, random.random(documents) < 0.08
        found.append((full, np.where(full, ~lost, won)))
    return found


def degradation(means):
    """The paper's, of the mean accuracy over tasks."""
    before, after = means.mean(axis=0)
    return (before - after) / (1 - before)


def accuracy(pairs):
    return measurements.mean_over_tasks([measurements.mean_and_error(each) for _, each in pairs])


# Samples, the function, and its value from the means before and after, of each task.
ERRORS = {
    "loss": (losses(), lambda pairs: measurements.mean_and_error(pairs[0][0]), lambda m: m[0, 0]),
    "quantization error": (
        losses(),
        lambda pairs: measurements.relative_increase(*pairs[0]),
        lambda means: means[0, 1] / means[0, 0] - 1,
    ),
    "degradation": (answers(), measurements.degradation, degradation),
    "accuracy": (answers(), accuracy, lambda means: means[:, 1].mean()),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_those_of_a_bootstrap(name):
    samples, function, statistic = ERRORS[name]
    pairs = [np.float32(pair) for pair in samples]
    value, error = function(pairs)
    assert value == pytest.approx(statistic(np.array([np.mean(p, 1, float) for p in pairs])))
    random, drawn = np.random.default_rng(0), []
    for _ in range(3000):
        again = [pair[:, random.integers(0, pair.shape[1], pair.shape[1])] for pair in pairs]
        drawn.append(statistic(np.array([np.mean(pair, 1, float) for pair in again])))
    assert error == pytest.approx(np.std(drawn), rel=0.06)


def test_no_degradation_is_known_where_all_was_right():
    assert np.isnan(measurements.degradation([(np.ones(4), np.float32([1, 0, 1, 0]))])).all()


# Ids and tasks of digits alone must not become numbers, nor words of pandas become nothing. Steps
# may repeat, and a merged model has none.
NAMES = st.sampled_from(["constant-3e-3", "a,b", 'quoted "name"', "nan"])
TEXTS = st.sampled_from(["step-0000360", "0360", "1e5", "007", "null", "NA", "v1.0"])
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.none()
WHOLE = st.integers(0, 10**14) | st.none()
FIELDS = {
    **dict.fromkeys(("trajectory", "family", "phase", "quantizer", "method", "metric"), NAMES),
    **dict.fromkeys(("checkpoint_id", "checkpoint"), TEXTS),
    **dict.fromkeys(("step", "tokens", "seed", "bits", "group_size"), WHOLE),
    "task": TEXTS | st.none(),
    **dict.fromkeys(("lr", "value", "stderr"), NUMBERS),
}
rows = st.lists(st.fixed_dictionaries(FIELDS), min_size=1, max_size=8)


@given(rows)
def test_what_is_written_is_read_back_exactly(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("table") / "measurements.csv"
    table = measurements.as_table(found)
    table.to_csv(path, index=False)
    again = measurements.read_table(path)
    assert tuple(again.columns) == COLUMNS
    for column in COLUMNS:
        one, other = (
            [None if pd.isna(value) else value for value in frame[column]]
            for frame in (table, again)
        )
        assert one == other, column
    again.to_csv(path.with_name("again.csv"), index=False)
    assert path.read_bytes() == path.with_name("again.csv").read_bytes()


@settings(max_examples=30)
@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_depend_on_that_of_jobs(found, random):
    unique = list({tuple(row[k] for k in KEY): row for row in found}.values())
    shuffled = random.sample(unique, len(unique))
    one, other = (measurements.as_table(some) for some in (unique, shuffled))
    assert one.equals(other), (one, other)
