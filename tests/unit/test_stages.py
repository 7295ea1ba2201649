"""Stages after pre-training: what they begin with, their rates, and what each is trained for."""

import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import dialogues
from ptq_dynamics.engine.context import Progress
from ptq_dynamics.train import schedules, train
from ptq_dynamics.train.objectives.preferences import Preferences
from ptq_dynamics.train.train import Trainer
from ptq_dynamics.train.trajectory import Trajectory
from safetensors.torch import load_file
from support import Workspace, artifacts, begin, differing, edit_yaml, plan, tiny_config
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.slow

STAGES = ("long-32k", "long-64k", "mid", "sft", "apo")


def named(stage):
    return f"smollm3-{stage}"


def config_of(folder, **scale):
    config = tiny_config(folder)
    edit_yaml(config / "scales/smoke.yaml", lambda found: found["miniatures"].update(stage="6/190"))
    edit_yaml(config / "scales/smoke.yaml", lambda found: found.update(scale))
    return config


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A workspace in which all stages are trained, one after the other."""
    folder = tmp_path_factory.mktemp("stages")
    found = Workspace(folder, plan("smoke", config_of(folder)))
    found.make(found.plan.trajectories.average("smollm3-main"))
    return found


def job_of(here, stage):
    return here.plan.trajectories.train(named(stage))


def corpus_of(here, stage):
    return here.read(job_of(here, stage).inputs["corpus"][0])


def before(here, stage):
    """Folder of the checkpoint that a stage begins with."""
    job = job_of(here, stage)
    source = Trajectory([here.read(path) for path in job.inputs["after"]])
    return source.folder(*source.at([job.settings.start]))


def trainer_of(here, stage, out, **changes):
    out.mkdir()
    settings = job_of(here, stage).settings.model_copy(update=changes)
    tokenizer = corpus_of(here, stage).subfolder("tokenizer")
    return Trainer(settings, out, tokenizer, before(here, stage))


def data_of(corpus, settings):
    return settings.objective.data(corpus, settings.context, settings.batch, settings.seed)


# What they begin with


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_begins_with_the_weights_at_the_end_of_the_one_before(here, stage, tmp_path):
    trainer = trainer_of(here, stage, tmp_path / "out")
    assert trainer.step == job_of(here, stage).settings.first
    theirs = load_file(before(here, stage) / "model.safetensors")
    mine = trainer.model.state_dict()
    assert all(torch.equal(mine[name], value) for name, value in theirs.items())
    chain = [named(each) for each in ("decay", *STAGES)]
    assert chain[chain.index(named(stage)) - 1] in str(before(here, stage))


def test_long_context_has_longer_sequences_and_another_rotary_base(here):
    timeline = here.plan.site.timeline
    own = {
        stage: here.plan.site.config.runs.runs[named(stage)].trained(timeline) for stage in STAGES
    }
    assert [own[stage].context for stage in STAGES] == [128, 256, 128, 128, 96]
    assert [own[stage].model.rotary_base for stage in STAGES] == [1.5e6, *[5e6] * 4]
    for stage in STAGES:
        *_, last = here.manifest(job_of(here, stage)).facts["checkpoints"]
        folder = here.manifest(job_of(here, stage)).subfolder(last["id"])
        config = json.loads((folder / "config.json").read_text())
        assert config["rope_parameters"]["rope_theta"] == own[stage].model.rotary_base
        assert config["max_position_embeddings"] == own[stage].context
        # What is measured reads as long sequences as before.
        assert here.plan.losses.evaluate(named(stage), "fp").settings.context == 16


def test_steps_and_tokens_go_on_from_stage_to_stage(here):
    step = tokens = 0
    for stage in ("decay", *STAGES):
        manifest = here.manifest(here.plan.trajectories.train(named(stage)))
        found = manifest.facts["checkpoints"]
        assert all(one["step"] > step and one["tokens"] > tokens for one in found[1:])
        if stage != "decay":
            settings = job_of(here, stage).settings
            assert (settings.first, settings.first_tokens) == (step, tokens)
            count = (settings.last - step) * settings.batch * settings.context
            assert found[-1]["tokens"] == tokens + count
        step, tokens = found[-1]["step"], found[-1]["tokens"]


def test_what_is_released_is_nine_parts_of_the_mean_of_preferences_and_one_of_mid_training(here):
    apo, mid, main = (
        here.manifest(job)
        for job in (
            job_of(here, "apo"),
            job_of(here, "mid"),
            here.plan.trajectories.average("smollm3-main"),
        )
    )
    weights = lambda manifest, one: load_file(  # noqa: E731
        manifest.folder / one["id"] / "model.safetensors"
    )
    *_, one, two = (weights(apo, each) for each in apo.facts["checkpoints"])
    half = weights(mid, mid.facts["checkpoints"][-1])
    for name, value in weights(main, main.facts["checkpoints"][-1]).items():
        expected = 0.9 * (one[name].double() + two[name].double()) / 2 + 0.1 * half[name].double()
        torch.testing.assert_close(value.double(), expected, rtol=0, atol=2e-7)


# Their rates


def test_the_rate_of_a_stage_warms_up_and_falls_along_half_a_cosine():
    stage = schedules.StageSchedule("stage", 2.0, 4, 0.5, 100, 14, "SFT")
    rates = [schedules.learning_rate(stage, step) for step in range(100, 115)]
    assert rates[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]
    expected = [0.5 + 1.5 * (1 + math.cos(math.pi * done / 10)) / 2 for done in range(11)]
    assert rates[4:] == pytest.approx(expected)
    assert schedules.phase(stage, 100) == schedules.phase(stage, 114) == "SFT"


# What they learn from


def test_fine_tuning_costs_answers_alone(here, tmp_path):
    """Against the likelihood of every token of answers, one by one, in float64."""
    settings, corpus = job_of(here, "sft").settings, corpus_of(here, "sft")
    batch = data_of(corpus, settings).at(3)
    model = AutoModelForCausalLM.from_pretrained(before(here, "sft")).double()
    total, count = 0.0, 0
    for tokens, marks in batch:
        with torch.no_grad():
            likelihoods = model(tokens[None, :-1]).logits[0].log_softmax(dim=-1)
        for place in range(1, len(tokens)):
            if marks[place]:
                total -= float(likelihoods[place - 1, tokens[place]])
                count += 1
    assert 0 < count < batch[:, 0].numel() / 2
    loss, _ = trainer_of(here, "sft", tmp_path / "out").update(batch)
    assert float(loss) == pytest.approx(total / count, rel=1e-5)


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize("anchor", ["zero", "down"])
@pytest.mark.parametrize(("right", "wrong"), [(0.0, 0.0), (1.5, -0.3), (-2.0, 0.7), (4.0, 3.0)])
def test_preferences_cost_what_the_paper_of_apo_says(anchor, right, wrong):
    """Equations of arXiv 2408.06266 and, by differences, their gradients: APO-zero lifts the right
    answer and lowers the wrong one; APO-down lowers the right one too, and the wrong one more."""
    if anchor == "zero":
        expected = lambda r, w: (1 - sigmoid(r)) + sigmoid(w)  # noqa: E731
    else:
        expected = lambda r, w: sigmoid(r) + (1 - sigmoid(r - w))  # noqa: E731
    given = [
        torch.tensor([value], dtype=torch.float64, requires_grad=True) for value in (right, wrong)
    ]
    loss = Preferences(kind="preferences", anchor=anchor, beta=1).apo(*given).sum()
    assert loss.item() == pytest.approx(expected(right, wrong), rel=1e-12)
    mine = torch.autograd.grad(loss, given)
    step = 1e-6
    slopes = [
        (expected(right + step, wrong) - expected(right - step, wrong)) / (2 * step),
        (expected(right, wrong + step) - expected(right, wrong - step)) / (2 * step),
    ]
    assert [float(each) for each in mine] == pytest.approx(slopes, abs=1e-7)


def test_pairs_have_one_question_its_answer_and_that_of_another(here):
    settings, corpus = job_of(here, "apo").settings, corpus_of(here, "apo")
    data, found = data_of(corpus, settings), dialogues.Dialogues(corpus)
    answers = {tuple(found.answer(number)) for number in range(len(found))}
    for right, wrong in torch.cat([data.at(step) for step in range(5)]):
        rows = []
        for tokens, marks in (right, wrong):
            places = marks.nonzero().flatten()
            assert marks[places[0] : places[-1] + 1].all()
            rows.append((tokens[: places[0]].tolist(), tuple(tokens[places].tolist())))
        assert rows[0][0] == rows[1][0] and rows[0][1] != rows[1][1]
        assert {rows[0][1], rows[1][1]} <= answers
    length = settings.context + 1
    fitting = int((found.lengths <= length).sum())
    assert fitting < len(found)
    epoch = [data.at(step) for step in range(fitting // settings.batch)]
    cut = [row[0, 0, : int(row[0, 1].nonzero().max()) + 1] for row in torch.cat(epoch)]
    every = [[*found.question(number), *found.answer(number)] for number in range(len(found))]
    seen, known = (Counter(tuple(map(int, row)) for row in rows) for rows in (cut, every))
    assert seen <= known and seen.total() == len(epoch) * settings.batch


def test_preferences_are_measured_from_the_model_before(here, tmp_path):
    """At first nothing is gained, and a pair costs 1; later, what float64 says."""
    settings, corpus = job_of(here, "apo").settings, corpus_of(here, "apo")
    data = data_of(corpus, settings)
    trainer = trainer_of(here, "apo", tmp_path / "out")
    loss, _ = trainer.update(data.at(0))
    assert float(loss) == pytest.approx(1, abs=1e-6)
    for step in range(1, 4):
        trainer.update(data.at(step))
    anchor = AutoModelForCausalLM.from_pretrained(before(here, "apo")).double()
    trainer.model.save_pretrained(tmp_path / "now")
    now = AutoModelForCausalLM.from_pretrained(tmp_path / "now").double()
    batch, expected = data.at(4), []
    for pair in batch:
        gains = []
        for tokens, marks in pair:
            place = marks.nonzero().flatten()
            with torch.no_grad():
                both = [
                    model(tokens[None])
                    .logits[0]
                    .log_softmax(dim=-1)[place - 1, tokens[place]]
                    .sum()
                    for model in (now, anchor)
                ]
            gains.append(0.05 * float(both[0] - both[1]))
        expected.append(1 - sigmoid(gains[0]) + sigmoid(gains[1]))
    loss, _ = trainer.update(batch)
    assert float(loss) == pytest.approx(np.mean(expected), abs=1e-5)


@pytest.mark.parametrize("stage", ["long-64k", "sft", "apo"])
def test_an_interrupted_stage_goes_on_to_the_same_bits(here, stage, tmp_path):
    trainer = trainer_of(here, stage, tmp_path / "out")
    data = data_of(corpus_of(here, stage), trainer.settings)
    begin(trainer, data, 4)
    trainer.save(tmp_path / train.state_name(trainer.step))
    resumed = trainer_of(here, stage, tmp_path / "again")
    begin(resumed, data, 0)
    resumed.load(tmp_path / train.state_name(trainer.step))
    train.train(resumed, data, tmp_path, Progress("test"))
    built = here.manifest(job_of(here, stage))
    last = built.facts["checkpoints"][-1]["id"]
    one = {name: data for name, data in artifacts(built.folder / last).items()}
    assert not differing(one, artifacts(tmp_path / "again" / last))


def test_a_stage_that_learns_lowers_its_own_loss(here, tmp_path):
    """Answers become likelier by fine-tuning, and right ones gain on wrong ones by preferences."""
    for stage in ("sft", "apo"):
        trainer = trainer_of(here, stage, tmp_path / stage, clip=1e9)
        batch = data_of(corpus_of(here, stage), trainer.settings).at(0)
        losses = [float(trainer.update(batch)[0]) for _ in range(4)]
        assert losses[-1] < losses[0], (stage, losses)


# What cannot be


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda f: f["smollm3-mid"].update(after="smollm3-main"),
            ["runs.smollm3-mid.after is 'smollm3-main'"],
        ),
        (
            lambda f: f["smollm3-long-32k"].update(after="smollm3-apo"),
            ["after is", "must be a run that does not come after it: smollm3, smollm3-decay"],
        ),
        (
            lambda f: f["smollm3-sft"].update(corpus="code"),
            ["smollm3-sft.objective is 'answers'", "has none"],
        ),
        (
            lambda f: f["smollm3-apo"]["objective"].update(anchor="up"),
            ["anchor is 'up'", "'zero' or 'down'"],
        ),
        (
            lambda f: f["smollm3-long-32k"].pop("tokens"),
            ["smollm3-long-32k.tokens is missing", "weight decay"],
        ),
        (
            lambda f: f["smollm3-mid"].update(corpus="chat"),
            ["smollm3-mid.corpus names no known corpus: 'chat'"],
        ),
    ],
)
def test_stages_that_cannot_be_are_refused_in_one_line(tmp_path, change, words):
    config = tiny_config(tmp_path)
    edit_yaml(config / "families.yaml", lambda found: change(found["runs"]))
    with pytest.raises(Problem) as caught:
        plan("smoke", config)
    message = str(caught.value)
    assert "\n" not in message
    for word in ["config/families.yaml", *words]:
        assert word in message, message
