"""Weight averages against numpy, alone and as LAWA on a trained trajectory."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.train import trajectory
from ptq_dynamics.train.average import run, weighted_mean
from ptq_dynamics.train.averages.last import Last
from ptq_dynamics.train.settings import AverageSettings, Mean, Member
from ptq_dynamics.train.timeline import Point
from ptq_dynamics.train.trajectory import Checkpoint, Trajectory
from safetensors.numpy import load_file, save_file
from support import edit_yaml, plan, tiny_config
from transformers import AutoModelForCausalLM, AutoTokenizer

weights = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=8)


def states(seed, count, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (3, 5), "b": (7,), "c": ()}
    return [
        {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}
        for _ in range(count)
    ]


def float64_mean(found, shares):
    return {
        name: sum(
            share * state[name].double().numpy() for share, state in zip(shares, found, strict=True)
        )
        / sum(shares)
        for name in found[0]
    }


@given(weights, st.integers(0, 2**31))
def test_weighted_mean_is_that_of_numpy_in_float64(shares, seed):
    found = states(seed, len(shares))
    mean = weighted_mean(iter(found), shares)
    for name, expected in float64_mean(found, shares).items():
        assert mean[name].dtype == torch.float32
        worst = np.abs(mean[name].numpy() - expected.astype(np.float32)).max()
        assert worst <= np.spacing(np.abs(expected).max().astype(np.float32)), (name, worst)


def tensors(manifest, name):
    return load_file(manifest.folder / name / "model.safetensors")


def float64_mean_of(states, shares=None):
    """What numpy gives, rounded once at the end as checkpoints are."""
    exact = float64_mean([from_numpy(state) for state in states], shares or [1.0] * len(states))
    return {name: value.astype(np.float32) for name, value in exact.items()}


def from_numpy(state):
    return {name: torch.from_numpy(value) for name, value in state.items()}


def equal(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize(("source", "name"), [("trunk", "lawa"), ("branch", "lawa-of-branch")])
def test_lawa_is_the_uniform_mean_of_the_last_checkpoints(
    request, workspace, average, source, name
):
    made = request.getfixturevalue(source)
    found = workspace.build(workspace.plan.trajectories.average(name))
    by_step = {point.step: point for point in Trajectory([made]).checkpoints}
    results = Trajectory([found]).checkpoints
    planned = workspace.plan.site.timeline.measured(name)
    assert [(point.id, point.step) for point in results] == planned
    assert len(planned) > 1
    for point in results:
        members = [by_step[point.step - back].id for back in (4, 2, 0)]
        mean = float64_mean_of([tensors(made, member) for member in members])
        assert equal(tensors(found, point.id), mean), point.id
        assert (point.tokens, point.lr, point.phase) == (
            by_step[point.step].tokens,
            None,
            "average",
        )


def test_windows_are_the_uniform_means_that_the_run_has_room_for(workspace, trunk):
    """Three checkpoints 12 steps apart do not fit into 24 steps."""
    found = workspace.build(workspace.plan.trajectories.average("windows"))
    results = Trajectory([found]).checkpoints
    assert [(point.id, point.step) for point in results] == [("every-2", 24), ("every-6", 24)]
    ids = {point.step: point.id for point in Trajectory([trunk]).checkpoints}
    for point, every in zip(results, (2, 6), strict=True):
        members = [tensors(trunk, ids[24 - every * back]) for back in range(3)]
        assert equal(tensors(found, point.id), float64_mean_of(members)), point.id
    kind = workspace.plan.site.config.runs.averages["windows"]
    assert kind.ages(workspace.plan.site.timeline) == {"every-2": 2, "every-6": 6}


def test_exponential_averages_weigh_all_checkpoints_by_age(workspace, trunk):
    found = workspace.build(workspace.plan.trajectories.average("fading"))
    results = Trajectory([found]).checkpoints
    assert [(point.id, point.step) for point in results] == [("memory-2", 24), ("memory-8", 24)]
    ids = {point.step: point.id for point in Trajectory([trunk]).checkpoints}
    ages = np.arange(0, 24, 4)
    members = [tensors(trunk, ids[24 - age]) for age in ages]
    timeline = workspace.plan.site.timeline
    kind = workspace.plan.site.config.runs.averages["fading"]
    for point, memory in zip(results, (2, 8), strict=True):
        shares = np.exp(-ages / memory)
        mean = float64_mean_of(members, shares.tolist())
        for name, value in tensors(found, point.id).items():
            worst = np.abs(value - mean[name]).max()
            assert worst <= np.spacing(np.abs(mean[name]).max()), (point.id, name, worst)
        assert kind.model_copy(update={"every": Fraction(3, 190)}).means(timeline) == []
        age = kind.ages(timeline)[point.id]
        assert age == pytest.approx(np.average(ages, weights=shares))


def test_an_average_of_averages_is_the_mean_of_those(workspace, average):
    found = workspace.build(workspace.plan.trajectories.average("lawa-of-lawa"))
    (point,) = Trajectory([found]).checkpoints
    assert point.id == "step-0000024"
    mean = float64_mean_of([tensors(average, name) for name in ("step-0000012", point.id)])
    assert equal(tensors(found, point.id), mean)
    assert not equal(tensors(found, point.id), tensors(average, point.id))


def test_a_line_goes_from_one_average_to_another(workspace, average, branch):
    """Its ends are theirs, and the points between lie evenly, whatever their trajectories are."""
    averages = workspace.plan.trajectories.average
    one, other = (workspace.build(averages(name)) for name in ("lawa-of-lawa", "lawa-of-branch"))
    found = workspace.build(averages("line-of-averages"))
    points = Trajectory([found]).checkpoints
    assert [(point.id, point.step) for point in points] == [
        (f"step-000000{number}", number) for number in range(4)
    ]
    ends = [tensors(made, Trajectory([made]).checkpoints[-1].id) for made in (one, other)]
    assert equal(tensors(found, points[0].id), ends[0])
    assert equal(tensors(found, points[-1].id), ends[1])
    for number, point in enumerate(points):
        shares = [1 - number / 3, number / 3]
        exact = float64_mean([from_numpy(end) for end in ends], shares)
        for name, value in tensors(found, point.id).items():
            gap = np.abs(value - exact[name]).max()
            assert gap <= np.spacing(np.abs(exact[name]).max().astype(np.float32)), (number, name)


# Merges, and the last measured checkpoints


def test_a_merge_is_the_weighted_mean_of_last_checkpoints(workspace, trunk, branch):
    """Weights of 3 and 1 are shares of 3/4 and 1/4; the run it follows is the last one's."""
    found = workspace.build(workspace.plan.trajectories.average("merge"))
    ends = [Trajectory([made]).checkpoints[-1] for made in (branch, trunk)]
    assert [end.step for end in ends] == [20, 24]
    (point,) = Trajectory([found]).checkpoints
    assert point == Checkpoint("merged", None, ends[1].tokens, None, "average")
    members = [tensors(made, end.id) for made, end in zip((branch, trunk), ends, strict=True)]
    mean = float64_mean_of(members, [0.75, 0.25])
    assert equal(tensors(found, point.id), mean)
    assert found.facts["parameters"] == trunk.facts["parameters"]
    timeline = workspace.plan.site.timeline
    assert timeline.trajectory("merge").run("merge", timeline) == "trunk"


def merged(folder, *tokens):
    """The merge of checkpoints after so many tokens, each of another trajectory."""
    inputs, members = {}, []
    for number, seen in enumerate(tokens):
        home = folder / f"from-{number}"
        (home / "end").mkdir(parents=True)
        save_file({"a": np.ones(2, np.float32)}, home / "end/model.safetensors")
        end = Checkpoint("end", None, seen, 0.1, "ingredient")
        facts = trajectory.facts([end], parameters=2, seed=1)
        inputs[str(number)] = [manifest.describe(home, home / "manifest.json", facts)]
        members.append(Member(str(number), "end", 1.0))
    settings = AverageSettings(phase="average", means=(Mean("merged", None, tuple(members)),))
    found = run(Context("merge", settings, inputs, folder, folder, Progress("test")))
    return Checkpoint(*found["checkpoints"][0].values())


@pytest.mark.parametrize("tokens", [(5, 9, 7), (5, None, 7)])
def test_a_merge_lies_at_the_most_tokens_if_all_are_known(tmp_path, tokens):
    most = None if None in tokens else max(tokens)
    assert merged(tmp_path, *tokens) == Checkpoint("merged", None, most, None, "average")


def test_the_last_measured_checkpoints_are_averaged_whatever_their_steps(workspace, branch):
    name = "last-of-branch"
    found = workspace.build(workspace.plan.trajectories.average(name))
    source, timeline = Trajectory([branch]), workspace.plan.site.timeline
    measured = source.at(point.id for point in timeline.measured("branch"))
    assert [point.step for point in measured] == [12, 16, 20]
    results = Trajectory([found]).checkpoints
    assert results == [replace(end, lr=None, phase="average") for end in measured[1:]]
    assert [(point.id, point.step) for point in results] == timeline.measured(name)
    for point, members in zip(results, pairwise(measured), strict=True):
        mean = float64_mean_of([tensors(branch, member.id) for member in members])
        assert equal(tensors(found, point.id), mean), point.id


@given(st.integers(2, 6), st.integers(2, 12), st.integers(1, 4))
def test_every_shard_has_its_own_windows_of_the_last_measured(last, count, size):
    points = [Point(f"p{7 * number % 13}", None) for number in range(count)]
    source = SimpleNamespace(averaged_of=lambda measured: measured)
    timeline = SimpleNamespace(measured=lambda name: points, trajectory=lambda name: source)
    kind = Last(trajectory="others", last=last)
    found = kind.checkpoints(timeline)
    assert found == points[last - 1 :]
    parts = [found[start : start + size] for start in range(0, len(found), size)]
    means = [mean for part in parts for mean in kind.settings(part, timeline).means]
    windows = [tuple(member.checkpoint for member in mean.members) for mean in means]
    assert windows == [
        tuple(point.id for point in points[end - last + 1 : end + 1])
        for end in range(last - 1, count)
    ]


REFUSED = {
    # The branch has checkpoints at 12, 14, 16, 18 and 20.
    "lawa-of-branch": [
        ({"every": "2/190", "window": 6}, ["no checkpoint of branch with 5 others", "2 steps"]),
        ({"every": "3/190", "window": 2}, ["no checkpoint of branch with 1 others", "3 steps"]),
    ],
    "line-of-averages": [
        ({"start": "line-of-averages"}, ["averages.line-of-averages is made from itself"]),
        ({"end": "kumar-70m-constant"}, ["whose models have other shapes"]),
    ],
    "merge": [
        ({"merge": {"trunk": 1, "trunks": 1}}, ["merge.merge.trunks names no", "'trunks'"]),
        ({"merge": ["trunk", "merge"]}, ["averages.merge is made from itself"]),
        ({"merge": ["trunk", "kumar-70m-constant"]}, ["trunk, kumar-70m-constant, whose models"]),
        ({"merge": []}, ["merge.merge", "at least 1 item"]),
        ({"merge": ["trunk", "branch", "trunk"]}, ["has 'trunk' twice"]),
        ({"merge": {"trunk": 1, "branch": 0}}, ["merge.merge.branch is 0", "greater than 0"]),
        ({"last": 2}, ["averages.merge.last: unknown key"]),
    ],
    "last-of-branch": [
        ({"last": 4}, ["last is 4, but branch has 3 measured checkpoints"]),
        ({"trajectory": "merge"}, ["last is 2, but merge has 1 measured"]),
        ({"every": "2/190"}, ["averages.last-of-branch.every: unknown key"]),
    ],
    "lawa": [
        ({"trajectory": "lawa-of-lawa"}, ["averages.lawa is made from itself"]),
    ],
    # A merge has no step, so nothing lies before it.
    "windows": [({"trajectory": "merge"}, ["for which merge has the checkpoints"])],
    "fading": [({"trajectory": "merge"}, ["for which merge has the checkpoints"])],
    "lawa-of-lawa": [({"trajectory": "merge"}, ["no checkpoint of merge with 1 others"])],
}


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [(name, *case) for name, cases in REFUSED.items() for case in cases],
)
def test_averages_that_cannot_be_made_are_refused_in_one_line(tmp_path, name, change, words):
    config = tiny_config(tmp_path)
    plan("smoke", config)
    edit_yaml(config / "runs.yaml", lambda found: found["averages"][name].update(change))
    with pytest.raises(Problem) as caught:
        plan("smoke", config)
    message = str(caught.value)
    assert "\n" not in message
    for word in ["config/runs.yaml: averages.", *words]:
        assert word in message, message


def test_an_average_is_a_checkpoint_like_any_other(average, trunk):
    folder = average.subfolder(Trajectory([average]).checkpoints[-1].id)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    losses = models.token_losses(model, *[torch.tensor([tokenizer.encode("a word")])] * 2)
    assert torch.isfinite(losses).all()
    assert average.facts["parameters"] == trunk.facts["parameters"] == model.num_parameters()
