"""Stages after pre-training: what they begin with, their rates, and what each is trained for."""

import math

import numpy as np
import pytest
import torch
from ptq_dynamics.corpus.tokens import answers as marked
from ptq_dynamics.corpus.tokens import read_split
from ptq_dynamics.train.trainer import Trainer
from ptq_dynamics.trajectories.trajectory import Trajectory
from safetensors.torch import load_file
from support import Workspace, plan, tiny_config
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.slow

STAGES = ("long-32k", "long-64k", "mid", "sft", "apo")


def named(stage):
    return f"smollm3-{stage}"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A workspace in which all stages are trained, one after the other."""
    folder = tmp_path_factory.mktemp("stages")
    config = tiny_config(folder, {"miniatures": {"stage": "6/190"}})
    found = Workspace(folder, plan("smoke", config))
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


def trainer_of(here, stage, out):
    out.mkdir()
    tokenizer = corpus_of(here, stage).subfolder("tokenizer")
    return Trainer(job_of(here, stage).settings, out, tokenizer, before(here, stage))


def data_of(here, stage):
    settings, corpus = job_of(here, stage).settings, corpus_of(here, stage)
    return settings.objective.data(corpus, settings.context, settings.batch, settings.seed)


def test_a_stage_begins_with_the_weights_steps_and_tokens_of_the_one_before(here, tmp_path):
    step = tokens = 0
    for number, stage in enumerate(("decay", *STAGES)):
        found = here.manifest(job_of(here, stage)).facts["checkpoints"]
        if number:
            trainer = trainer_of(here, stage, tmp_path / stage)
            settings, mine = trainer.settings, trainer.model.state_dict()
            assert (settings.first, settings.first_tokens) == (step, tokens)
            theirs = load_file(before(here, stage) / "model.safetensors")
            assert trainer.step == step
            assert all(torch.equal(mine[name], value) for name, value in theirs.items())
            assert named(("decay", *STAGES)[number - 1]) in str(before(here, stage))
            count = (settings.last - step) * settings.batch * settings.context
            assert found[-1]["tokens"] == tokens + count
        step, tokens = found[-1]["step"], found[-1]["tokens"]


# What they learn from


def test_fine_tuning_costs_answers_alone(here, tmp_path):
    """Against the likelihood of every token of answers, one by one, in float64."""
    batch = data_of(here, "sft").at(3)
    model = AutoModelForCausalLM.from_pretrained(before(here, "sft")).double()
    costs = []
    for tokens, marks in batch:
        with torch.no_grad():
            likelihoods = model(tokens[None, :-1]).logits[0].log_softmax(dim=-1)
        places = [place for place in range(1, len(tokens)) if marks[place]]
        costs += [-float(likelihoods[place - 1, tokens[place]]) for place in places]
    assert 0 < len(costs) < batch[:, 0].numel() / 2
    loss, _ = trainer_of(here, "sft", tmp_path / "out").update(batch)
    assert float(loss) == pytest.approx(np.mean(costs), rel=1e-5)


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def test_pairs_have_one_question_its_answer_and_that_of_another(here):
    data, corpus = data_of(here, "apo"), corpus_of(here, "apo")
    turns = np.flatnonzero(np.diff(marked(corpus).astype(int))) + 1
    answers = {tuple(answer) for answer in np.split(read_split(corpus, "train"), turns)[1::2]}
    for right, wrong in torch.cat([data.at(step) for step in range(5)]):
        rows = []
        for tokens, marks in (right, wrong):
            places = marks.nonzero().flatten()
            assert marks[places[0] : places[-1] + 1].all()
            rows.append((tokens[: places[0]].tolist(), tuple(tokens[places].tolist())))
        assert rows[0][0] == rows[1][0] and rows[0][1] != rows[1][1]
        assert {rows[0][1], rows[1][1]} <= answers


def test_preferences_are_measured_from_the_model_before(here, tmp_path):
    """At first nothing is gained, and a pair costs 1; later, what float64 says."""
    data = data_of(here, "apo")
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
                rates = [m(tokens[None]).logits[0].log_softmax(dim=-1) for m in (now, anchor)]
            one, other = (rate[place - 1, tokens[place]].sum() for rate in rates)
            gains.append(0.05 * float(one - other))
        expected.append(1 - sigmoid(gains[0]) + sigmoid(gains[1]))
    loss, _ = trainer.update(batch)
    assert float(loss) == pytest.approx(np.mean(expected), abs=1e-5)
