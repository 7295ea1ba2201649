"""Weight averages against numpy, alone and as kinds of averages of trained trajectories."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.measure.names import MEASUREMENTS
from ptq_dynamics.trajectories.average import weighted_mean, write_mean
from ptq_dynamics.trajectories.trajectory import Checkpoint, Trajectory
from safetensors.torch import load_file, save_file
from support import artifacts, differing, figure, one_line, plan, tiny_config
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

pytestmark = pytest.mark.slow

weights = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=8)


def exact(states, shares=None):
    """The weighted mean of state dicts, by numpy in float64, of each tensor."""
    shares = shares or [1.0] * len(states)
    return {
        name: sum(s * state[name].double().numpy() for s, state in zip(shares, states, strict=True))
        / sum(shares)
        for name in states[0]
    }


def require_mean(found, states, shares=None):
    """That tensors are the mean, but for the last bit of float32."""
    expected = exact(states, shares)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        gap = np.abs(found[name].numpy() - value.astype(np.float32)).max()
        assert gap <= np.spacing(np.abs(value).max().astype(np.float32)), (name, gap)


def state(manifest, name):
    return load_file(manifest.folder / name / "model.safetensors")


@given(weights, st.integers(0, 2**31))
def test_a_weighted_mean_is_that_of_numpy_in_float64(shares, seed):
    generator = torch.Generator().manual_seed(seed)
    for shape in ((3, 5), (7,), ()):
        values = [torch.randn(shape, generator=generator) for _ in shares]
        mean = weighted_mean(iter(values), shares)
        assert mean.dtype == torch.float32
        require_mean({"a": mean}, [{"a": value} for value in values], shares)


def test_a_mean_of_whole_numbers_is_rounded():
    """As of masks and positions, which older checkpoints hold."""
    shares = [0.1, 0.2, 0.4]
    for value in (torch.arange(50), torch.tensor([True, False])):
        mean = weighted_mean([value] * 3, shares)
        assert mean.dtype == value.dtype and torch.equal(mean, value)
    cut = [(sum(n * share for share in shares) / sum(shares)) // 1 for n in range(50)]
    assert cut != list(range(50)), "or a mean that is cut off would do as well"


# Files


def test_models_that_the_library_splits_are_averaged_in_files_like_the_last_ones(tmp_path):
    shape = {"vocab_size": 40, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    models = [GPTNeoXForCausalLM(GPTNeoXConfig(**shape, intermediate_size=20)) for _ in range(3)]
    folders = [tmp_path / str(number) for number in range(3)]
    for model, folder, size in zip(models, folders, ["1GB", "4KB", "2KB"], strict=True):
        model.save_pretrained(folder, max_shard_size=size)
    assert [len(list(each.glob("*.safetensors"))) > 1 for each in folders] == [False, True, True]
    write_mean(tmp_path / "mean", folders, [1.0, 2.0, 3.0])
    names = [{path.name for path in each.iterdir()} for each in (folders[-1], tmp_path / "mean")]
    assert names[0] == names[1]
    mean = GPTNeoXForCausalLM.from_pretrained(tmp_path / "mean").state_dict()
    require_mean(mean, [model.state_dict() for model in models], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("b"), "differ in name"),
        (lambda state: state.update(z=torch.ones(2)), "tensors of "),
        (lambda state: state.update(a=torch.ones(5, 3)), "shape"),
        (lambda state: state.update(a=state["a"].bfloat16()), "type"),
    ],
)
def test_checkpoints_of_several_models_are_a_problem(tmp_path, change, message):
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder in folders:
        folder.mkdir()
        tensors = {"a": torch.ones(3, 5), "b": torch.ones(7)}
        if folder.name == "0":
            change(tensors)
        save_file(tensors, folder / "model.safetensors")
    with one_line(message):
        write_mean(tmp_path / "mean", folders, [1.0] * 2)
    assert not (tmp_path / "mean").exists()


# Kinds


@pytest.fixture
def made(workspace, trunk, branch, average):
    """An average by its name, with its checkpoints."""

    def do(name):
        found = workspace.build(workspace.plan.trajectories.average(name))
        return found, Trajectory([found]).checkpoints

    return do


def test_lawa_is_the_uniform_mean_of_the_last_checkpoints(workspace, made, trunk):
    found, points = made("lawa")
    ids = {point.step: point for point in Trajectory([trunk]).checkpoints}
    planned = workspace.plan.site.planned["lawa"].measured
    assert [(point.id, point.step) for point in points] == planned and len(planned) > 1
    for point in points:
        members = [ids[point.step - back].id for back in (4, 2, 0)]
        require_mean(state(found, point.id), [state(trunk, each) for each in members])
        assert point == replace(ids[point.step], lr=None, phase="average")
    assert found.facts["parameters"] == trunk.facts["parameters"]


def test_windows_are_the_uniform_means_that_the_run_has_room_for(workspace, made, trunk):
    """Three checkpoints 12 steps apart do not fit into 24 steps."""
    found, points = made("windows")
    assert [(point.id, point.step) for point in points] == [("every-2", 24), ("every-6", 24)]
    ids = {point.step: point.id for point in Trajectory([trunk]).checkpoints}
    for point, every in zip(points, (2, 6), strict=True):
        members = [state(trunk, ids[24 - every * back]) for back in range(3)]
        require_mean(state(found, point.id), members)
    assert workspace.plan.site.planned["windows"].ages == {"every-2": 2, "every-6": 6}


def test_exponential_averages_weigh_all_checkpoints_by_age(workspace, made, trunk):
    found, points = made("fading")
    assert [(point.id, point.step) for point in points] == [("memory-2", 24), ("memory-8", 24)]
    ids = {point.step: point.id for point in Trajectory([trunk]).checkpoints}
    ages, fading = np.arange(0, 24, 4), workspace.plan.site.planned["fading"]
    for point, memory in zip(points, (2, 8), strict=True):
        shares = np.exp(-ages / memory)
        members = [state(trunk, ids[24 - age]) for age in ages]
        require_mean(state(found, point.id), members, shares.tolist())
        age = fading.ages[point.id]
        assert age == pytest.approx(np.average(ages, weights=shares))
    sparse = fading.entry.model_copy(update={"every": Fraction(3, 190)})
    assert replace(fading, entry=sparse).means == []


def test_a_line_goes_from_one_average_to_another(made):
    """Its ends are theirs, and the points between lie evenly."""
    both = [made("lawa-of-lawa"), made("lawa-of-branch")]
    ends = [state(found, points[-1].id) for found, points in both]
    found, points = made("line-of-averages")
    assert [(p.id, p.step) for p in points] == [(f"step-000000{n}", n) for n in range(4)]
    for number, point in enumerate(points):
        require_mean(state(found, point.id), ends, [1 - number / 3, number / 3])


def test_a_merge_is_the_weighted_mean_of_last_checkpoints(workspace, made, trunk, branch):
    """Weights of 3 and 1 are shares of 3/4 and 1/4; the run it follows is the last one's."""
    found, points = made("merge")
    ends = [Trajectory([each]).checkpoints[-1] for each in (branch, trunk)]
    assert points == [Checkpoint("merged", None, ends[1].tokens, None, "average")]
    members = [state(each, end.id) for each, end in zip((branch, trunk), ends, strict=True)]
    require_mean(state(found, "merged"), members, [0.75, 0.25])
    assert workspace.plan.site.planned["merge"].followed.name == "trunk"


def test_a_greedy_soup_takes_what_lowers_its_loss(workspace, made, trunk, branch):
    """Its loss on the text that chooses is that of some members' mean, not above any member's."""
    found, _ = made("soup")
    corpus = workspace.build(workspace.plan.trajectories.corpus("main"))
    settings = workspace.plan.trajectories.average("soup").settings.choice
    blocks = tokens.blocks(corpus, "probe", settings.context, settings.blocks)
    ends = [Trajectory([each]) for each in (branch, trunk, made("lawa")[0])]
    folders = [each.folder(each.checkpoints[-1]) for each in ends]

    def loss(folder):
        return float(models.block_losses(models.load(folder), blocks, settings.batch).mean())

    means = {}
    for size in (1, 2, 3):
        for taken in combinations(range(3), size):
            folder = workspace.folder / "subsets" / "-".join(map(str, taken))
            write_mean(folder, [folders[at] for at in taken], [1.0] * size)
            means[taken] = loss(folder)
    soup = loss(found.subfolder("merged"))
    assert any(each == pytest.approx(soup, abs=1e-6) for each in means.values())
    assert soup <= min(means[at,] for at in range(3)) + 1e-6


def test_the_last_measured_checkpoints_are_averaged_whatever_their_steps(workspace, made, branch):
    found, points = made("last-of-branch")
    source, planned = Trajectory([branch]), workspace.plan.site.planned["branch"]
    measured = source.at(point.id for point in planned.measured)
    assert [point.step for point in measured] == [12, 16, 20]
    assert points == [replace(end, lr=None, phase="average") for end in measured[1:]]
    for point, members in zip(points, pairwise(measured), strict=True):
        require_mean(state(found, point.id), [state(branch, each.id) for each in members])


# The branch has checkpoints at 12, 14, 16, 18 and 20; a merge has no step, so none lies before it.
REFUSED = [
    ("lawa-of-branch", {"window": 6}, "(5 from step-0000012 to step-0000020, 3 measured)"),
    ("line-of-averages", {"end": "kumar-70m-constant"}, "whose models differ in shape"),
    ("merge", {"merge": ["trunk", "merge"]}, "averages.merge depends on itself"),
    ("last-of-branch", {"last": 4}, "has no average"),
    ("lawa-at-12", {"at": "13/190"}, "weights is lawa-at-12; name an average that ends at step 12"),
]


@pytest.mark.parametrize(("name", "change", "words"), REFUSED)
def test_averages_that_cannot_be_made_are_refused_in_one_line(tmp_path, name, change, words):
    config = tiny_config(tmp_path, runs={"averages": {name: change}})
    with one_line("config/runs.yaml: ", words):
        plan("smoke", config)


# Shards, one job each


TRAJECTORIES = ["trunk", "line-of-averages", "last-of-branch"]
SHOWN = {
    "of-all": figure(
        "over_tokens", {"all": TRAJECTORIES}, ["loss", "quantization_error"], quantizers=["rtn3"]
    ),
    "probed": figure("over_tokens", {"one": ["lawa-of-lawa"]}, ["sharpness"]),
}


def test_shards_are_the_whole_to_the_byte(workspace, trunk, branch, tmp_path):
    """Weights of averages, and all that is measured."""
    found = {}
    for size in (None, 2):
        config = tiny_config(tmp_path / str(size), {"shard": size}, figures=SHOWN)
        sharded = plan("smoke", config, figures=list(SHOWN))
        found[size] = workspace.beside(config.parent, sharded, "trunk", "branch")
        found[size].make(found[size].plan.measurements.collect())
    one, other = (
        each.manifest(each.plan.measurements.collect()).file(MEASUREMENTS).read_bytes()
        for each in found.values()
    )
    assert one == other
    assert all(name in one.decode() for name in ("sharpness", "weight_mse", *TRAJECTORIES, "rtn3"))
    for name in ("lawa-of-lawa", *TRAJECTORIES[1:]):
        whole, parts = (
            Trajectory([each.manifest(job) for job in each.plan.trajectories.jobs(name)])
            for each in found.values()
        )
        assert whole.checkpoints == parts.checkpoints
        for checkpoint in whole.checkpoints:
            folders = [source.folder(checkpoint) for source in (whole, parts)]
            assert not differing(*map(artifacts, folders)), checkpoint.id
