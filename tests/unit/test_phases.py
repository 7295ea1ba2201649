"""Branches with data of their own: a phase with another corpus or batch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ptq_dynamics.train import train
from ptq_dynamics.train.processes import Team
from ptq_dynamics.trajectories.trajectory import Trajectory
from support import RUNS, SCALE, plan, tiny_config

pytestmark = pytest.mark.slow

# The same text, but less of it to train on.
CORPORA = {"shorter": {**SCALE["corpora"]["main"], "train": 9000}}
PHASES = {"batch": {"batch_factor": 1.5}, "all": {"corpus": "shorter", "batch_factor": 0.75}}
# Sequences a step, tokens a sequence (the trunk has 4 of 16), and steps of its batch that its trunk
# has seen the data of.
BATCHES = {"batch": (6, 16, 8), "all": (3, 16, 0)}


@pytest.fixture(scope="module")
def here(workspace, trunk, tmp_path_factory):
    """A workspace with the trunk, both corpora, and both branches."""
    folder = tmp_path_factory.mktemp("phases")
    runs = {name: {**RUNS["branch"], **own} for name, own in PHASES.items()}
    config = tiny_config(folder, {"corpora": CORPORA}, runs={"runs": runs})
    found = workspace.beside(folder, plan("smoke", config), "trunk")
    for name in PHASES:
        found.make(found.plan.trajectories.train(name))
    return found


@pytest.mark.parametrize("name", PHASES)
def test_a_phase_trains_on_its_own_data_or_goes_on_with_its_trunks(here, name):
    """Read from the bytes of its corpus, in the order of seed 100."""
    job, (batch, context, skipped) = here.plan.trajectories.train(name), BATCHES[name]
    settings, corpus = job.settings, here.read(job.inputs["corpus"][0])
    trainer = SimpleNamespace(settings=settings, team=Team(0, 1), device=torch.device("cpu"))
    data = settings.objective.data(corpus, settings.context, settings.batch, settings.seed)
    found = torch.cat([*train.ahead(data, trainer, range(12, 20))])
    tokens = np.fromfile(corpus.file("train.bin"), dtype="<u2").astype(np.int64)
    order = np.random.Generator(np.random.PCG64([100, 0])).permutation((len(tokens) - 1) // context)
    starts = order[skipped * batch : (skipped + 8) * batch] * context
    assert found.tolist() == [tokens[at : at + context + 1].tolist() for at in starts]


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
