"""Components, read in blocks of columns, against stacked checkpoints."""

import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.curvature.components import column_blocks
from ptq_dynamics.curvature.landscape import flatten
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

pytestmark = pytest.mark.slow


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
