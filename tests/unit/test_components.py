"""Components, read in blocks of columns, against stacked checkpoints."""

import shutil
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.curvature import components
from ptq_dynamics.curvature.components import column_blocks
from ptq_dynamics.curvature.landscape import flatten
from ptq_dynamics.trajectories.trajectory import Trajectory
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

pytestmark = pytest.mark.slow

NAMES = ["trunk", "branch", "lawa"]


@pytest.fixture(scope="module")
def job(workspace, trunk, branch, average):
    figure = SimpleNamespace(trajectories=NAMES, headline=False)
    return workspace.plan.figures.components("pca", figure, 2)


@pytest.fixture(scope="module")
def stacked(job, trunk, branch, average):
    """What every checkpoint of the job is, and its parameters, all in memory: float32 [n, P]."""
    rows, vectors = [], []
    for path, manifest in zip(job.settings.paths, (trunk, branch, average), strict=True):
        source = Trajectory([manifest])
        for checkpoint in source.at(path.checkpoints):
            model = models.load(source.folder(checkpoint))
            vectors.append(flatten(dict(model.named_parameters())))
            place = {"step": checkpoint.step, "tokens": checkpoint.tokens}
            rows.append({"trajectory": path.trajectory, "seed": path.seed, **place})
    return rows, torch.stack(vectors)


@pytest.mark.parametrize("width", [components.BLOCK, 997], ids=["one", "many"])
def test_scores_are_those_of_stacked_checkpoints_to_the_byte(
    workspace, job, stacked, width, tmp_path, monkeypatch
):
    monkeypatch.setattr(components, "BLOCK", width)
    shutil.rmtree(workspace.folder / job.folder, ignore_errors=True)
    built = workspace.build(job)
    rows, matrix = stacked
    table = pd.DataFrame(rows)
    scores, _ = components.pca(torch.split(matrix, width, dim=1), 2)
    table["pc1"], table["pc2"] = scores[:, 0].tolist(), scores[:, 1].tolist()
    table.to_csv(tmp_path / "scores.csv", index=False)
    expected = (tmp_path / "scores.csv").read_bytes()
    assert built.file(components.SCORES).read_bytes() == expected


def save(folder, shard="1GB", dtype=torch.float32, **changes):
    """A saved model whose every parameter is random; its parameters as one vector."""
    shape = {"vocab_size": 40, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**{**shape, "intermediate_size": 20, **changes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    return flatten(dict(models.load(folder).named_parameters()))


@pytest.mark.parametrize(
    "changes",
    [{}, {"shard": "2KB"}, {"tie_word_embeddings": True}, {"dtype": torch.bfloat16}],
    ids=["plain", "sharded", "tied", "bfloat16"],
)
@pytest.mark.parametrize("width", [64, 1 << 22])
def test_blocks_are_the_parameters_that_the_library_loads(tmp_path, width, changes):
    folders = [tmp_path / name for name in "ab"]
    matrix = torch.stack([save(folder, **changes) for folder in folders])
    parts = list(column_blocks(folders, width))
    assert all(part.shape[1] == width for part in parts[:-1])
    assert torch.cat(parts, dim=1).equal(matrix)
    assert parts[0].dtype == changes.get("dtype", torch.float32)
