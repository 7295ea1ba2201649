"""Tiny models of transformers with random weights, saved as checkpoints, and text for them."""

import json

import torch
import transformers
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.hub.folders import files_of
from ptq_dynamics.quantize.methods import Calibration
from ptq_dynamics.trajectories import local

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


def uneven(model):
    """The model with rows of unequal size, as a trained one has them."""
    for parameter in model.parameters():
        rows = [len(parameter), *[1] * (parameter.ndim - 1)]
        parameter.data = torch.randn_like(parameter) * torch.rand(rows)
    return model


def edit(path, **changes):
    """Change entries of a JSON file, which may be missing."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | changes))


def linked(folder, out, *, has_code=False):
    """A checkpoint of a run in the result of the job that links it."""
    point = local.trajectory.Checkpoint("step-1", 1, None, None, "stable")
    files = files_of(folder, has_code=has_code)
    chosen = (local.LocalCheckpoint(point, folder.name, files),)
    out.mkdir()
    settings = local.LocalSettings(str(folder.parent), chosen, (), 1)
    local.run(Context("local", settings, {}, out, out, Progress("local")))
    return out / point.id


def train(folder, model, rows, callbacks=(), tokenizer=None, **options):
    """The Trainer of transformers, after it has trained a model on rows of tokens."""
    plain = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "learning_rate": 3e-3}
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(folder, **(plain | options)),
        transformers.default_data_collator,
        [{"input_ids": row, "labels": row} for row in rows],
        processing_class=tokenizer,
        callbacks=[*callbacks],
    )
    trainer.train()
    return trainer
