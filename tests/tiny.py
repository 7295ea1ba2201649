"""Tiny models of transformers with random weights, saved as checkpoints, and text for them."""

import json

import torch
import transformers
from ptq_dynamics.quantize.methods import Calibration

SHAPE = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SHAPE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
GPT2 = {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
TEXT = Calibration(torch.randint(0, 96, (8, 32), generator=torch.Generator().manual_seed(1)), 4)


def create(kind="Llama", seed=0, **options):
    """A model of a kind, as classes of transformers are called."""
    torch.manual_seed(seed)
    shape = GPT2 if kind == "GPT2" else SHAPE
    config = getattr(transformers, f"{kind}Config")(**{**shape, **options})
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def save(folder, kind="Llama", seed=0, size="1GB", **options):
    """The folder of its checkpoint, with files of some size at most."""
    create(kind, seed, **options).save_pretrained(folder, max_shard_size=size)
    return folder


def edit(path, **changes):
    """Change entries of a JSON file, which may be missing."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | changes))
