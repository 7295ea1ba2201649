"""Measurements: errors against a bootstrap, the schema, and exact round trips."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.measurements import COLUMNS, KEY

pytestmark = pytest.mark.slow

COUNT = 400


def losses(seed):
    """Losses of the same blocks before and after quantization, as correlated as real ones are."""
    generator = np.random.default_rng(seed)
    full = generator.normal(3.5, 0.4, COUNT)
    quantized = full * generator.normal(1.02, 0.01, COUNT) + generator.normal(0, 0.01, COUNT)
    return full.astype(np.float32), quantized.astype(np.float32)


def mean(full, _):
    return measurements.mean_and_error(full)


STATISTICS = [
    (mean, lambda full, _: full.mean()),
    (measurements.relative_increase, lambda full, quantized: quantized.mean() / full.mean() - 1),
]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("function", "statistic"), STATISTICS)
def test_standard_errors_are_those_of_a_bootstrap_over_blocks(function, statistic, seed):
    samples = [sample.astype(np.float64) for sample in losses(seed)]
    value, error = function(*losses(seed))
    assert value == pytest.approx(statistic(*samples), rel=1e-12)
    chosen = np.random.default_rng(0).integers(0, COUNT, (4000, COUNT))
    drawn = [statistic(*(sample[index] for sample in samples)) for index in chosen]
    assert error == pytest.approx(np.std(drawn), rel=0.06)


rows = st.lists(
    st.fixed_dictionaries(
        {
            "trajectory": st.sampled_from(["constant-3e-3", "a,b", 'quoted "name"', "nan"]),
            "family": st.just("controlled"),
            "phase": st.sampled_from(["stable", "cooldown", "average"]),
            # A merged model has no step, and steps may repeat.
            "step": st.integers(0, 10**7) | st.none(),
            "tokens": st.integers(0, 10**14) | st.none(),
            "lr": st.floats(0, 1) | st.none(),
            "seed": st.integers(0, 2**31) | st.none(),
            "quantizer": st.sampled_from(["fp", "gptq-4bit", "gptq-4bit-static"]),
            "method": st.sampled_from(["fp", "gptq"]),
            "bits": st.sampled_from([3, 4]) | st.none(),
            "group_size": st.just(128) | st.none(),
            # Ids of digits alone must not become numbers, nor words of pandas become nothing.
            "checkpoint_id": st.sampled_from(["step-0000360", "0360", "1e5", "null", "v1.0"]),
            "task": st.sampled_from(["arc-easy", "007", "NA"]) | st.none(),
            "metric": st.sampled_from(["loss", "quantization_error"]),
            "value": st.floats(allow_nan=False, allow_infinity=False),
            "stderr": st.floats(0, allow_infinity=False) | st.none(),
            # Nor must digests of digits alone.
            "checkpoint": st.from_regex(r"[0-9e]{16}|[0-9a-f]{16}", fullmatch=True),
        }
    ),
    min_size=1,
    max_size=8,
)


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
