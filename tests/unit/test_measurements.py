"""Measurements: errors against a bootstrap, the schema, and exact round trips."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.measurements import COLUMNS
from ptq_dynamics.trajectories import trajectory
from safetensors.numpy import load_file

COUNT = 400


def losses(seed):
    """Losses of the same blocks before and after quantization, as correlated as real ones are."""
    generator = np.random.default_rng(seed)
    full = generator.normal(3.5, 0.4, COUNT)
    quantized = full * generator.normal(1.02, 0.01, COUNT) + generator.normal(0, 0.01, COUNT)
    return full.astype(np.float32), quantized.astype(np.float32)


def bootstrap(statistic, *samples, draws=4000):
    generator = np.random.default_rng(0)
    chosen = generator.integers(0, COUNT, (draws, COUNT))
    return np.std([statistic(*(sample[index] for sample in samples)) for index in chosen])


STATISTICS = {
    "mean": (
        lambda full, _: measurements.mean_and_error(full),
        lambda full, _: full.mean(),
    ),
    "increase": (
        measurements.increase,
        lambda full, quantized: quantized.mean() - full.mean(),
    ),
    "relative increase": (
        measurements.relative_increase,
        lambda full, quantized: quantized.mean() / full.mean() - 1,
    ),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", STATISTICS)
def test_standard_errors_are_those_of_a_bootstrap_over_blocks(name, seed):
    function, statistic = STATISTICS[name]
    samples = [sample.astype(np.float64) for sample in losses(seed)]
    value, error = function(*losses(seed))
    assert value == pytest.approx(statistic(*samples), rel=1e-12)
    assert error == pytest.approx(bootstrap(statistic, *samples), rel=0.06)


def test_the_paired_error_is_far_below_that_of_independent_blocks():
    full, quantized = losses(3)
    _, paired = measurements.increase(full, quantized)
    apart = math.hypot(
        measurements.mean_and_error(full)[1], measurements.mean_and_error(quantized)[1]
    )
    assert paired < apart / 5


def test_unchanged_losses_have_no_error():
    full, _ = losses(4)
    assert measurements.increase(full, full) == (0.0, 0.0)
    value, error = measurements.relative_increase(full, full)
    assert (value, error) == (0.0, pytest.approx(0.0, abs=1e-18))


rows = st.lists(
    st.fixed_dictionaries(
        {
            "trajectory": st.sampled_from(["constant-3e-3", "lawa-5", "a,b", 'quoted "name"']),
            "family": st.just("controlled"),
            "phase": st.sampled_from(["stable", "cooldown", "average"]),
            "step": st.integers(0, 10**7),
            "tokens": st.integers(0, 10**14),
            "lr": st.floats(0, 1),
            "seed": st.integers(0, 2**31) | st.none(),
            "method": st.sampled_from(["fp", "gptq"]),
            "bits": st.sampled_from([3, 4]) | st.none(),
            "group_size": st.just(128) | st.none(),
            "metric": st.sampled_from(["loss", "quantization_error"]),
            "value": st.floats(allow_nan=False, allow_infinity=False),
            "stderr": st.floats(0, allow_infinity=False) | st.none(),
            # Digests of digits alone must not become numbers.
            "checkpoint": st.from_regex(r"[0-9e]{16}|[0-9a-f]{16}", fullmatch=True),
        }
    ),
    min_size=1,
    max_size=8,
)


@given(rows)
def test_what_is_written_is_read_back_exactly(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("table") / "measurements.csv"
    table = measurements.table(found)
    measurements.write(table, path)
    again = measurements.read([path])
    assert tuple(again.columns) == COLUMNS
    for column in COLUMNS:
        one, other = (
            [None if pd.isna(value) else value for value in frame[column]]
            for frame in (table, again)
        )
        assert one == other, column
    measurements.write(again, path.with_name("again.csv"))
    assert path.read_bytes() == path.with_name("again.csv").read_bytes()


@settings(max_examples=30)
@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_depend_on_that_of_jobs(found, random):
    unique = list({tuple(row[k] for k in measurements.KEY): row for row in found}.values())
    shuffled = unique[:]
    random.shuffle(shuffled)
    tables = [measurements.table(some) for some in (unique, shuffled)]
    assert tables[0].equals(tables[1]), tables


# On real evaluations


@pytest.fixture(scope="module")
def measured(workspace, trunk, rtn):
    plan = workspace.plan
    for method in ("fp", "rtn3"):
        workspace.build(plan.losses.evaluate("trunk", method, "all"))
    jobs = {method: plan.measure("trunk", method) for method in ("fp", "rtn3")}
    return {
        method: measurements.read([workspace.build(job).file("measurements.csv")])
        for method, job in jobs.items()
    }


def test_the_schema_of_a_trajectorys_measurements(measured):
    for table in measured.values():
        assert tuple(table.columns) == COLUMNS
        kinds = {column: table[column].dtype for column in COLUMNS}
        assert kinds["bits"] == kinds["group_size"] == kinds["seed"] == "Int64"
        assert kinds["step"] == kinds["tokens"] == np.int64
        assert kinds["lr"] == kinds["value"] == np.float64
        assert not table.duplicated(measurements.KEY).any()
    full, rounded = measured["fp"], measured["rtn3"]
    assert set(full.metric) == {"loss"}
    assert full.bits.isna().all() and full.group_size.isna().all()
    assert {"loss", "loss_increase", "quantization_error"} <= set(rounded.metric)
    assert {"weight_mse", "output_mse"} <= set(rounded.metric)
    assert set(rounded.bits) == {3} and set(rounded.group_size) == {16}
    assert set(rounded.method) == {"rtn"} and set(full.method) == {"fp"}


def test_measured_values_are_those_of_the_losses(workspace, measured, trunk):
    plan = workspace.plan
    kept = {
        method: load_file(
            workspace.folder
            / plan.losses.evaluate("trunk", method, "all").folder
            / "losses.safetensors"
        )
        for method in ("fp", "rtn3")
    }
    rounded = measured["rtn3"].set_index(["metric", "step"])
    for point in trajectory.at_steps(trunk, plan.site.timeline.measured_steps("trunk")):
        before, after = (kept[method][point.folder].astype(np.float64) for method in ("fp", "rtn3"))
        expected = {
            "loss": (after.mean(), after.std(ddof=1)),
            "loss_increase": (after.mean() - before.mean(), (after - before).std(ddof=1)),
            "quantization_error": (after.mean() / before.mean() - 1, None),
        }
        for metric, (value, spread) in expected.items():
            row = rounded.loc[(metric, point.step)]
            assert row.value == pytest.approx(value, rel=1e-12), (metric, point.step)
            if spread is not None:
                assert row.stderr == pytest.approx(spread / math.sqrt(len(after)), rel=1e-12)
            assert (row.phase, row.tokens, row.lr) == (point.phase, point.tokens, point.lr)
            assert row.seed == 100


def test_a_quantized_row_names_the_quantized_checkpoint(measured, rtn, trunk):
    table = measured["rtn3"]
    for point in trajectory.checkpoints(rtn):
        named = set(table[table.step == point.step].checkpoint)
        assert named == {trajectory.digest(rtn, point)}
        assert named != {trajectory.digest(trunk, point)}
