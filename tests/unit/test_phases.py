"""Branches with data of their own: a phase with another corpus, batch or context."""

from itertools import chain

import numpy as np
import pytest
import torch
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus.tokens import TrainingData
from ptq_dynamics.engine.context import Progress
from ptq_dynamics.train import train
from ptq_dynamics.train.train import Trainer
from ptq_dynamics.train.trajectory import Trajectory
from safetensors.torch import load_file
from support import (
    RUNS,
    SCALE,
    Workspace,
    artifacts,
    copy_results,
    differing,
    edit_yaml,
    plan,
    tiny_config,
)

pytestmark = pytest.mark.slow

# The same text, but less of it to train on; and text with a tokenizer of its own.
MAIN = SCALE["corpora"]["main"]
CORPORA = {"shorter": {**MAIN, "train": 9000}, "foreign": {**MAIN, "vocabulary": 301}}
PHASES = {
    "corpus": {"corpus": "shorter"},
    "batch": {"batch": 6},
    "context": {"context": 8},
    "all": {"corpus": "shorter", "batch": 3, "context": 8},
}
# Steps of its batch that its trunk has seen the data of.
SKIPPED = {"batch": 8}
# Sequences a step and tokens a sequence; the trunk has 4 of 16.
BATCHES = {"corpus": (4, 16), "batch": (6, 16), "context": (4, 8), "all": (3, 8)}
TRUNK_TOKENS = 12 * 4 * 16


def phase(name):
    return f"phase-{name}"


def config_of(folder, **changes):
    """The tiny configuration with a branch of every kind above, and changes to one of all."""
    config = tiny_config(folder)
    runs = {phase(name): {**RUNS["branch"], **own} for name, own in PHASES.items()}
    runs[phase("all")] |= changes
    edit_yaml(config / "runs.yaml", lambda found: found["runs"].update(runs))
    edit_yaml(config / "scales/smoke.yaml", lambda scale: scale["corpora"].update(CORPORA))
    return config


@pytest.fixture(scope="module")
def here(workspace, trunk, tmp_path_factory):
    """A workspace with the trunk and both corpora, without its branches."""
    folder = tmp_path_factory.mktemp("phases")
    before = workspace.plan
    made = [before.corpora.corpus("main").folder, before.trajectories.train("trunk").folder]
    copy_results(workspace.folder, folder, made)
    found = Workspace(folder, plan("smoke", config_of(folder)))
    found.build(found.plan.corpora.corpus("shorter"))
    return found


@pytest.fixture(scope="module")
def built(here):
    """Every phase, trained by its job."""
    return {name: here.build(here.plan.trajectories.train(phase(name))) for name in PHASES}


def corpus_of(here, name):
    return here.manifest(here.plan.corpora.corpus(PHASES[name].get("corpus", "main")))


def batches(corpus, batch, context, count, skipped=0):
    """Batches of a corpus at seed 100 after those skipped, read from the bytes of its file."""
    tokens = np.fromfile(corpus.folder / "train.bin", dtype="<u2").astype(np.int64)
    sequences = (len(tokens) - 1) // context
    order = np.random.Generator(np.random.PCG64([100, 0])).permutation(sequences)
    for step in range(skipped, skipped + count):
        starts = order[step * batch : (step + 1) * batch] * context
        yield torch.from_numpy(np.stack([tokens[at : at + context + 1] for at in starts]))


def trainer_of(here, name, out):
    """A trainer of a phase at the state of its trunk."""
    settings = here.plan.trajectories.train(phase(name)).settings
    out.mkdir()
    trainer = Trainer(settings, out, corpus_of(here, name).subfolder("tokenizer"))
    trunk = here.manifest(here.plan.trajectories.train("trunk"))
    trainer.load(trunk.file(train.state_name(settings.first)))
    return trainer


@pytest.mark.parametrize("name", PHASES)
def test_a_phase_trains_on_its_own_data_or_goes_on_with_its_trunks(here, built, name, tmp_path):
    corpus = corpus_of(here, name)
    trainer = trainer_of(here, name, tmp_path / "out")
    for batch in batches(corpus, *BATCHES[name], 8, SKIPPED.get(name, 0)):
        trainer.update(batch)
    found = load_file(built[name].folder / "step-0000020/model.safetensors")
    expected = trainer.model.state_dict()
    # transformers names the output head of every architecture lm_head.
    found["lm_head.weight"] = found.pop("embed_out.weight")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[each], expected[each]) for each in found)


@pytest.mark.parametrize("name", PHASES)
def test_a_phase_counts_the_tokens_of_its_trunk_and_its_own(built, name):
    batch, context = BATCHES[name]
    steps = [12, 14, 16, 18, 20]
    points = Trajectory([built[name]]).checkpoints
    assert [point.step for point in points] == steps
    expected = {step: TRUNK_TOKENS + (step - 12) * batch * context for step in range(12, 21)}
    assert [point.tokens for point in points] == [expected[step] for step in steps]
    assert built[name].facts["tokens_processed"] == 8 * batch * context
    rows = (built[name].folder / train.CURVE).read_text().splitlines()[1:]
    logged = [tuple(map(int, row.split(",")[:2])) for row in rows]
    assert logged == [(step, expected[step]) for step in steps[1:]]


@pytest.mark.parametrize("name", ["all", "batch"])
def test_an_interrupted_phase_goes_on_to_the_same_bytes(here, built, name, tmp_path):
    settings = here.plan.trajectories.train(phase(name)).settings
    data = TrainingData(corpus_of(here, name), settings.context, settings.batch, settings.seed)
    trainer, scratch = trainer_of(here, name, tmp_path / "out"), tmp_path / "scratch"
    scratch.mkdir()
    trainer.open_curve()
    trainer.save_due()
    for step in range(12, 17):
        loss, norm = trainer.update(data.at(step - settings.data_first))
        trainer.save_due(loss)
        if trainer.at_log():
            trainer.log(loss, norm)
    trainer.save(scratch / train.state_name(17))
    resumed = Trainer(settings, trainer.out, corpus_of(here, name).subfolder("tokenizer"))
    saved = train.latest_state(scratch, resumed)
    assert saved is not None
    resumed.load(saved)
    assert resumed.step == 17
    train.train(resumed, data, scratch, Progress("test"))
    found, expected = artifacts(trainer.out), artifacts(built[name].folder)
    expected.pop("manifest.json")
    assert found
    assert not differing(found, expected)


def test_a_phase_is_measured_with_its_corpus_and_context(here, built):
    """Evaluated on blocks of its own context."""
    for name in ("context", "all"):
        job = here.plan.losses.evaluate(phase(name), "fp")
        assert job.settings.context == 8
        assert job.inputs["corpus"] == [corpus_of_job(here, name)]
        found = load_file(here.build(job).file("losses.safetensors"))
        assert set(chain.from_iterable(values.shape for values in found.values())) == {32}


def corpus_of_job(here, name):
    return here.plan.corpora.corpus(PHASES[name].get("corpus", "main")).manifest


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"corpus": "foreign"}, ["phase-all.corpus is 'foreign'", "tokenizer", "'main'"]),
        ({"context": 17}, ["phase-all.context is 17", "16"]),
    ],
    ids=["tokenizer", "context"],
)
def test_phases_that_cannot_be_are_refused_in_one_line(tmp_path, changes, words):
    with pytest.raises(Problem) as caught:
        plan("smoke", config_of(tmp_path, **changes))
    message = str(caught.value)
    assert "\n" not in message
    for word in ["config/runs.yaml", *words]:
        assert word in message, message
