"""Seeds: what is planned, trained and measured at several, and that each stands for itself."""

import numpy as np
import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.measurements import KEY
from ptq_dynamics.measure.names import LOSSES, MEASUREMENTS
from ptq_dynamics.train.trajectory import Trajectory
from safetensors.numpy import load_file
from support import (
    TRUNK,
    Workspace,
    artifacts,
    copy_results,
    differing,
    edit_yaml,
    figure,
    jobs_of,
    plan,
    tiny_config,
)

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
    "line-2": {"start": "mean", "end": "down-2", "points": 3},
    "soup": {"merge": ["mean", "down"]},
    "soup-2": {"merge": ["pair", "mean", "down-2"]},
}
# The seeds that each follows from its sources.
SEEDS = {"pair": BOTH, "down": BOTH, "down-2": (2,), "mean": BOTH, "line": BOTH, "line-2": (2,)}
SEEDS |= {"soup": BOTH, "soup-2": (2,)}
MEASURED = ["pair", "down", "down-2", "line"]
METRICS = ["loss", "quantization_error"]


def planned(folder, seeds, **changes):
    """A plan of the runs above with these seeds, and with changes to single entries."""
    config = tiny_config(folder)
    runs = {**RUNS, "pair": {**RUNS["pair"], "seeds": list(seeds)}}
    figures = {
        "of-seeds": figure("losses", {"all": MEASURED}, METRICS, quantizers=["rtn3"]),
        "probed": figure("dynamics", {"one": ["mean"]}, ["sharpness"]),
    }

    def add(content):
        content["runs"].update(runs)
        content["averages"].update(AVERAGES)
        for section in ("runs", "averages"):
            for name in content[section].keys() & changes.keys():
                content[section][name] = changes[name]

    edit_yaml(config / "runs.yaml", add)
    edit_yaml(config / "figures.yaml", lambda f: f.update(figures))
    return plan("smoke", config, figures=list(figures))


@pytest.fixture(scope="module")
def pair(workspace, corpus, tmp_path_factory):
    """The runs at both seeds, with all that is measured of them."""
    folder = tmp_path_factory.mktemp("seeds")
    copy_results(workspace.folder, folder, [workspace.plan.corpora.corpus("main").folder])
    built = Workspace(folder, planned(folder, BOTH))
    built.make(built.plan.figures.collect())
    return built


def weights(manifest, checkpoint):
    return load_file(manifest.folder / checkpoint.id / "model.safetensors")


def equal(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


def ends(built, name, seed):
    """Weights of a trajectory's first and last checkpoint."""
    (manifest,) = map(built.manifest, built.plan.trajectories.makers(name, seed))
    points = Trajectory([manifest]).checkpoints
    return weights(manifest, points[0]), weights(manifest, points[-1])


def test_the_table_holds_the_measurements_of_all_seeds(pair):
    table = measurements.read(pair.manifest(pair.plan.figures.collect()).file(MEASUREMENTS))
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


def test_seeds_give_different_weights_and_different_data(pair):
    one, two = (ends(pair, "pair", seed) for seed in BOTH)
    for before, after in zip(one, two, strict=True):
        assert all(not np.array_equal(before[n], after[n]) for n in before if before[n].ndim > 1)
    jobs = [pair.plan.trajectories.train("pair", seed) for seed in BOTH]
    assert [pair.manifest(job).facts["seed"] for job in jobs] == list(BOTH)


@pytest.mark.parametrize("seed", BOTH)
def test_what_is_made_of_a_run_is_made_at_its_seed(pair, seed):
    """A cooldown leaves the trunk of its seed; averages and lines are of checkpoints of theirs."""
    (trunk,) = map(pair.manifest, pair.plan.trajectories.makers("pair", seed))
    states = [weights(trunk, each) for each in Trajectory([trunk]).checkpoints[-2:]]
    for name, value in ends(pair, "mean", seed)[1].items():
        exact = np.mean([state[name].astype(np.float64) for state in states], axis=0)
        assert np.array_equal(value, exact.astype(np.float32)), name
    assert equal(ends(pair, "down", seed)[0], weights(trunk, Trajectory([trunk]).checkpoints[1]))
    assert equal(ends(pair, "line", seed)[0], ends(pair, "mean", seed)[1])
    assert equal(ends(pair, "line", seed)[1], ends(pair, "down", seed)[1])


def test_a_seed_alone_is_what_it_is_beside_others(pair, tmp_path):
    """The same specifications and bytes; so a seed that is added trains and measures itself."""
    alone = Workspace(tmp_path, planned(tmp_path, [2]))
    copy_results(pair.folder, tmp_path, [alone.plan.corpora.corpus("main").folder])
    before = {job.manifest: job.spec() for job in jobs_of(pair.plan, SEEDS, ["rtn3"])}
    jobs = list(jobs_of(alone.plan, SEEDS, ["rtn3"]))
    assert len(jobs) > 20
    for job in jobs:
        assert job.spec() == before[job.manifest], job.folder
    evaluation = alone.plan.losses.evaluate("line", "rtn3", "all", 2)
    alone.make(evaluation)
    for place in ("train/pair", "train/down", "average/line", "quantize/line", "evaluate/line"):
        folder = f"results/smoke/{place}/seed-2"
        found, expected = artifacts(tmp_path / folder), artifacts(pair.folder / folder)
        expected = {name: data for name, data in expected.items() if not name.startswith("fp/")}
        assert found
        assert not differing(found, expected), place
    one, two = (pair.manifest(pair.plan.losses.evaluate("line", "rtn3", "all", s)) for s in BOTH)
    assert one.file(LOSSES).read_bytes() != two.file(LOSSES).read_bytes()


@pytest.mark.parametrize(
    ("seeds", "changes", "words"),
    [
        (BOTH, {"down-2": {**RUNS["down"], "seeds": [2, 3]}}, ["down-2.seeds has 3", "trunk pair"]),
        (
            (1,),
            {"down-2": RUNS["down"], "line-2": {**AVERAGES["line"], "end": "trunk"}},
            ["averages.line-2 goes from mean to trunk", "no seed alike"],
        ),
        (
            (2,),
            {"soup-2": {"merge": ["down-2", "trunk"]}},
            ["averages.soup-2 merges down-2, trunk, which have no seed alike"],
        ),
        ((1, 1), {}, ["runs.pair.seeds", "has 1 twice"]),
        ((), {}, ["runs.pair.seeds", "at least 1"]),
        ((1, -1), {}, ["runs.pair.seeds.1", "greater than or equal to 0"]),
    ],
    ids=[
        "not-of-the-trunk",
        "no-seed-alike",
        "no-seed-alike-to-merge",
        "twice",
        "none",
        "negative",
    ],
)
def test_seeds_that_cannot_be_are_refused_in_one_line(tmp_path, seeds, changes, words):
    with pytest.raises(Problem) as caught:
        planned(tmp_path, seeds, **changes)
    message = str(caught.value)
    assert "\n" not in message
    for word in ["config/runs.yaml", *words]:
        assert word in message, message
