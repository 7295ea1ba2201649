"""Branches with data of their own: a phase with another corpus or batch."""

import numpy as np
import pytest
import torch
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.train import train
from ptq_dynamics.train.trainer import Trainer
from ptq_dynamics.trajectories.trajectory import Trajectory
from support import RUNS, SCALE, artifacts, begin, differing, one_line, plan, tiny_config

pytestmark = pytest.mark.slow

# The same text, but less of it to train on; and text with a tokenizer of its own.
MAIN = SCALE["corpora"]["main"]
CORPORA = {"shorter": {**MAIN, "train": 9000}, "foreign": {**MAIN, "vocabulary": 301}}
PHASES = {"batch": {"batch_factor": 1.5}, "all": {"corpus": "shorter", "batch_factor": 0.75}}
# Sequences a step, tokens a sequence (the trunk has 4 of 16), and steps of its batch that its trunk
# has seen the data of.
BATCHES = {"batch": (6, 16, 8), "all": (3, 16, 0)}


def config_of(folder, **changes):
    """The tiny configuration with a branch of every kind above, and changes to one of all."""
    runs = {name: {**RUNS["branch"], **own} for name, own in PHASES.items()}
    runs["all"] |= changes
    return tiny_config(folder, {"corpora": CORPORA}, runs={"runs": runs})


@pytest.fixture(scope="module")
def here(workspace, trunk, tmp_path_factory):
    """A workspace with the trunk, both corpora, and both branches."""
    folder = tmp_path_factory.mktemp("phases")
    found = workspace.beside(folder, plan("smoke", config_of(folder)), "trunk")
    for name in PHASES:
        found.make(found.plan.trajectories.train(name))
    return found


class Data:
    """Batches of a phase at seed 100, read from the bytes of its corpus."""

    def __init__(self, corpus, name):
        self.batch, self.context, self.skipped = BATCHES[name]
        self.tokens = np.fromfile(corpus.folder / "train.bin", dtype="<u2").astype(np.int64)
        count = (len(self.tokens) - 1) // self.context
        self.order = np.random.Generator(np.random.PCG64([100, 0])).permutation(count)

    def at(self, step, rows=None):
        first = (step + self.skipped) * self.batch
        starts = self.order[first : first + self.batch] * self.context
        rows = [self.tokens[start : start + self.context + 1] for start in starts]
        return torch.from_numpy(np.stack(rows))


@pytest.mark.parametrize("name", PHASES)
def test_a_phase_trains_on_its_own_data_or_goes_on_with_its_trunks(here, name, tmp_path):
    """From the state of its trunk; where it is interrupted, to the same bytes."""
    job = here.plan.trajectories.train(name)
    settings, corpus = job.settings, here.read(job.inputs["corpus"][0])
    tokenizer, data = corpus.subfolder("tokenizer"), Data(corpus, name)
    state = here.read(job.inputs["trunk"][0]).file(train.state_name(settings.first))
    # The data of a phase begin at a step that may be another batch's.
    settings = settings.model_copy(update={"data_first": settings.first})
    trainer = Trainer(settings, tmp_path, tokenizer)
    trainer.load(state)
    begin(trainer, data, 5)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    trainer.save(scratch / train.state_name(17))
    resumed = Trainer(settings, tmp_path, tokenizer)
    resumed.load(train.latest_state(scratch, resumed))
    train.train(resumed, data, Context("test", settings, {}, tmp_path, scratch, Progress("test")))
    found, expected = artifacts(tmp_path), artifacts(here.manifest(job).folder)
    names = [each for each in expected if each in found]
    assert len(names) > 5 and not differing(*({n: x[n] for n in names} for x in (found, expected)))


@pytest.mark.parametrize("name", PHASES)
def test_a_phase_counts_the_tokens_of_its_trunk_and_its_own(here, name):
    manifest = here.manifest(here.plan.trajectories.train(name))
    batch, context, _ = BATCHES[name]
    steps = [12, 14, 16, 18, 20]
    expected = {step: 12 * 4 * 16 + (step - 12) * batch * context for step in range(12, 21)}
    points = Trajectory([manifest]).checkpoints
    assert [(point.step, point.tokens) for point in points] == [(s, expected[s]) for s in steps]
    assert manifest.facts["tokens_processed"] == 8 * batch * context
    rows = manifest.file(train.CURVE).read_text().splitlines()[1:]
    logged = [tuple(map(int, row.split(",")[:2])) for row in rows]
    assert logged == [(step, expected[step]) for step in steps[1:]]


def test_a_phase_with_another_tokenizer_is_refused_in_one_line(tmp_path):
    words = "runs.yaml: runs.all.corpus is 'foreign', whose tokenizer is not that of 'main'"
    with one_line(words):
        plan("smoke", config_of(tmp_path, corpus="foreign"))
