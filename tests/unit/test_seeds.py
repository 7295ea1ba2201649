"""Seeds: what is planned, trained and measured at several, and that each stands for itself."""

import numpy as np
import pytest
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.measurements import KEY
from ptq_dynamics.measure.names import MEASUREMENTS
from ptq_dynamics.trajectories.trajectory import Trajectory
from safetensors.numpy import load_file
from support import TRUNK, figure, plan, tiny_config

pytestmark = pytest.mark.slow

BOTH = (1, 2)
RUNS = {
    "pair": {**TRUNK, "length": "8/190", "checkpoint_every": "2/190", "state_every": "4/190"},
    "down": {"trunk": "pair", "at": "4/190", "cooldown": "4/190", "checkpoint_every": "2/190"},
}
RUNS["down-2"] = {**RUNS["down"], "seeds": [2]}
AVERAGES = {
    "mean": {"trajectory": "pair", "every": "2/190", "window": 2},
    "line": {"start": "mean", "end": "down", "points": 3},
}
# The seeds that each follows from its sources.
SEEDS = {"pair": BOTH, "down": BOTH, "down-2": (2,), "mean": BOTH, "line": BOTH}
MEASURED = ["pair", "down", "down-2", "line"]
METRICS = ["loss", "quantization_error"]


def planned(folder):
    """A plan of the runs above at both seeds."""
    runs = {**RUNS, "pair": {**RUNS["pair"], "seeds": list(BOTH)}}
    figures = {
        "of-seeds": figure("over_tokens", {"all": MEASURED}, METRICS, quantizers=["rtn3"]),
        "probed": figure("over_tokens", {"one": ["mean"]}, ["sharpness"]),
    }
    config = tiny_config(folder, runs={"runs": runs, "averages": AVERAGES}, figures=figures)
    return plan("smoke", config, figures=list(figures))


@pytest.fixture(scope="module")
def pair(workspace, corpus, tmp_path_factory):
    """The runs at both seeds, with all that is measured of them."""
    folder = tmp_path_factory.mktemp("seeds")
    built = workspace.beside(folder, planned(folder))
    built.make(built.plan.measurements.collect())
    return built


def weights(manifest, checkpoint):
    return load_file(manifest.folder / checkpoint.id / "model.safetensors")


def equal(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


def ends(built, name, seed):
    """Weights of a trajectory's first and last checkpoint."""
    (manifest,) = map(built.manifest, built.plan.trajectories.jobs(name, seed))
    points = Trajectory([manifest]).checkpoints
    return weights(manifest, points[0]), weights(manifest, points[-1])


def test_the_table_holds_the_measurements_of_all_seeds(pair):
    table = measurements.read_table(
        pair.manifest(pair.plan.measurements.collect()).file(MEASUREMENTS)
    )
    assert not table.duplicated(KEY).any()
    assert table.duplicated([column for column in KEY if column != "seed"]).any()
    found = {name: tuple(sorted(set(rows.seed))) for name, rows in table.groupby("trajectory")}
    assert found == {name: SEEDS[name] for name in [*MEASURED, "mean"]}
    others = [column for column in KEY if column != "seed"]
    one, two = (table[(table.seed == seed) & (table.trajectory != "down-2")] for seed in BOTH)
    both = one.merge(two, on=others, how="outer", indicator=True, suffixes=("_1", "_2"))
    assert set(both["_merge"]) == {"both"}
    both = both[both.metric != "sharpness_iterations"]
    assert (both.value_1 != both.value_2).all()


@pytest.mark.parametrize("seed", BOTH)
def test_what_is_made_of_a_run_is_made_at_its_seed(pair, seed):
    """A cooldown leaves the trunk of its seed; averages and lines are of checkpoints of theirs."""
    (trunk,) = map(pair.manifest, pair.plan.trajectories.jobs("pair", seed))
    states = [weights(trunk, each) for each in Trajectory([trunk]).checkpoints[-2:]]
    for name, value in ends(pair, "mean", seed)[1].items():
        exact = np.mean([state[name].astype(np.float64) for state in states], axis=0)
        assert np.array_equal(value, exact.astype(np.float32)), name
    assert equal(ends(pair, "down", seed)[0], weights(trunk, Trajectory([trunk]).checkpoints[1]))
    assert equal(ends(pair, "line", seed)[0], ends(pair, "mean", seed)[1])
    assert equal(ends(pair, "line", seed)[1], ends(pair, "down", seed)[1])
