"""The run behind figures/reference/own, by transformers' Trainer.

Its settings are those of scale laptop's `wsd-3e-3`, fixed before anything was measured: model,
steps, peak rate, weight decay, and a linear decay over the last fifth. It reads the scale's text
without networkx, whose docstrings `ptq-dynamics measure` takes to evaluate.

    python tests/own_example.py FOLDER && ptq-dynamics measure FOLDER --every 2"""

import sys

import tiny
import torch
import transformers
import yaml
from ptq_dynamics.corpus import packages
from ptq_dynamics.corpus.sources.embedded import train_tokenizer
from support import ROOT

scale = yaml.safe_load((ROOT / "config/scales/laptop.yaml").read_text())
corpus, model, regime = scale["corpora"]["main"], scale["models"]["main"], scale["regime"]
steps, batch, context = scale["budget"], regime["batch"], model["context"]
names = [name for name in corpus["packages"] if name != "networkx"]
found = packages.documented(names, corpus["shortest_document"], corpus["source_code"])
documents = [*packages.by_digest(found)]
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=train_tokenizer(documents, corpus["vocabulary"]), eos_token="<|endoftext|>"
)
end = tokenizer.eos_token_id
tokens = torch.tensor([i for each in tokenizer(documents)["input_ids"] for i in [*each, end]])
print(f"{len(tokens):,} tokens, of which a run sees {steps * batch * context:,}")
torch.manual_seed(0)
shape = {"hidden_size": model["width"], "intermediate_size": model["feedforward"]}
shape |= {"num_hidden_layers": model["layers"], "num_attention_heads": model["heads"]}
shape |= {"max_position_embeddings": context, "vocab_size": corpus["vocabulary"]}
rotary = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}
tiny.train(
    sys.argv[1],
    transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**shape, rope_parameters=rotary)),
    tokens.split(context)[:-1],
    tokenizer=tokenizer,
    max_steps=steps,
    save_steps=steps // 40,
    logging_steps=steps // 40,
    per_device_train_batch_size=batch,
    learning_rate=3e-3 * regime["peak_lr_factor"],
    weight_decay=0.1 * regime["weight_decay_factor"],
    adam_beta2=0.95,
    lr_scheduler_type="warmup_stable_decay",
    lr_scheduler_kwargs={"num_decay_steps": steps // 5, "decay_type": "linear"},
    warmup_steps=steps // 100,
    include_num_input_tokens_seen="all",
)
