"""Convert checkpoints of OLMo's own code (github.com/allenai/OLMo) for OlmoForCausalLM, which has
separate matrices for queries, keys and values, and for both inputs of the gated activation."""

import json
import re
from typing import Any

from ptq_dynamics.base.checkpoints import CONFIG
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.hub.files import TOKENIZER

OLMO = "olmo"  # the family's `format`
_MEND = "leave the family out, or its `format`"
_NAME = re.compile(r"(?:model\.)?transformer\.(?:blocks\.(\d+)\.)?(\w+)\.weight")
_INSIDE = {
    "att_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attn_out": ("self_attn.o_proj",),
    "ff_proj": ("mlp.up_proj", "mlp.gate_proj"),
    "ff_out": ("mlp.down_proj",),
}
_OUTSIDE = {"wte": ("model.embed_tokens",), "ff_out": ("lm_head",)}


def converted_config(content: str) -> dict[str, object]:
    """Return config.json for transformers; raise `Problem` if `content` has another format."""
    try:
        theirs: dict[str, Any] = json.loads(content)  # JSON of another program
        width, inner = theirs["d_model"], theirs.get("mlp_hidden_size")
        return {
            "architectures": ["OlmoForCausalLM"],
            "model_type": "olmo",
            "clip_qkv": theirs.get("clip_qkv"),
            "hidden_size": width,
            "intermediate_size": int(inner or width * theirs["mlp_ratio"]) // 2,
            "max_position_embeddings": theirs["max_sequence_length"],
            "num_attention_heads": theirs["n_heads"],
            "num_hidden_layers": theirs["n_layers"],
            "num_key_value_heads": theirs["n_heads"],
            "rope_theta": theirs.get("rope_theta", 10000.0),
            "tie_word_embeddings": theirs["weight_tying"],
            "vocab_size": theirs.get("embedding_size") or theirs["vocab_size"],
        }
    except (KeyError, TypeError, ValueError) as error:
        raise Problem(f"config.json is not in OLMo's own format ({error}); {_MEND}") from None


def converted_tokenizer(content: str) -> dict[str, object]:
    """Return tokenizer_config.json without the names of code; tokenizer.json suffices."""
    left = {key: value for key, value in json.loads(content).items() if key != "auto_map"}
    return left | {"tokenizer_class": "PreTrainedTokenizerFast"}


REWRITTEN = {CONFIG: converted_config, TOKENIZER: converted_tokenizer}


def names(name: str) -> tuple[str, ...]:
    """Return transformers' names of the parts of a tensor; raise `Problem` if it has none."""
    match = _NAME.fullmatch(name)
    block, kind = (match[1], match[2]) if match else (None, "")
    parts = (_OUTSIDE if block is None else _INSIDE).get(kind)
    if parts is None:
        raise Problem(f"{name} is no weight of transformers' OLMo; {_MEND}")
    before = "" if block is None else f"model.layers.{block}."
    return tuple(f"{before}{part}.weight" for part in parts)
