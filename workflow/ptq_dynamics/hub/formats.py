"""Checkpoints in formats of other programs: the files that show them, and what converts them."""

import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from runpy import run_path

AUTO = "from transformers import AutoConfig as C, AutoModelForCausalLM as A"


@dataclass(frozen=True)
class Format:
    """A format with patterns of its files, and how to convert it. Fields in braces are the `folder`
    of a checkpoint, its `name` and `parent`; the `file` that fits first and its `place`; and the
    `python` of this process."""

    name: str
    files: tuple[str, ...]
    conversion: str


# The first format that fits counts. Files of optimizers, such as optimizer.pt, fit none.
FORMATS = (
    Format(
        "an adapter (LoRA)",
        ("adapter_config.json",),
        'merge it: python -c "from peft import AutoPeftModelForCausalLM as A; '
        "A.from_pretrained('{folder}').merge_and_unload()"
        ".save_pretrained('{parent}/merged/{name}')\"; add its tokenizer",
    ),
    Format(
        "weights of GGUF",
        ("*.gguf",),
        "if they are not quantized (F32, F16, BF16), convert them: "
        f'{{python}} -c "{AUTO}; '
        "m = A.from_pretrained('{folder}', gguf_file='{file}'); m.hf_quantizer = None; "
        "del m.config.quantization_config; m.save_pretrained('{folder}')\"; add its tokenizer",
    ),
    Format(
        "layers of GPT-NeoX",
        ("layer_*-model_*-model_states.pt",),
        "convert it with tools/ckpts/convert_neox_to_hf.py of GPT-NeoX",
    ),
    Format(
        "shards of DeepSpeed ZeRO",
        ("*_optim_states.pt", "mp_rank_*_model_states.pt"),
        "convert it: python -m deepspeed.utils.zero_to_fp32 '{parent}' '{folder}' -t '{name}' "
        "--safe_serialization; add config.json and its tokenizer",
    ),
    Format(
        "shards of DeepSpeed ZeRO",
        ("zero_to_fp32.py", "*/*_optim_states.pt"),
        "convert it: python -m deepspeed.utils.zero_to_fp32 '{folder}' '{folder}' "
        "--safe_serialization",
    ),
    Format(
        "shards of FSDP",
        ("pytorch_model_fsdp_*/*.distcp",),
        "convert it: {python} -m accelerate.commands.accelerate_cli merge-weights "
        "'{folder}/pytorch_model_fsdp_0' '{folder}'",
    ),
    Format(
        "weights of FSDP in a .bin file",
        ("pytorch_model_fsdp.bin",),
        f'convert it: {{python}} -c "import torch; {AUTO}; '
        "m = A.from_config(C.from_pretrained('{folder}'), dtype=torch.float32); "
        "m.load_state_dict(torch.load('{folder}/{file}')); m.save_pretrained('{folder}')\"",
    ),
    Format(
        "one process's part of FSDP",
        ("pytorch_model_fsdp_rank*.bin",),
        "save it again with fsdp_state_dict_type FULL_STATE_DICT or SHARDED_STATE_DICT",
    ),
    Format(
        "a checkpoint of OLMo-core",
        ("model_and_optim/.metadata", "model_and_optim/*.distcp"),
        "convert it: python src/examples/huggingface/convert_checkpoint_to_hf.py "
        "-i '{folder}' -o '{parent}/hf/{name}' --dtype float32",
    ),
    Format(
        "a checkpoint of torch.distributed",
        (".metadata", "*.distcp", "*/.metadata", "*/*.distcp"),
        "convert it; of torchtitan: python scripts/checkpoint_conversion/convert_to_hf.py "
        "'{place}' '{parent}/hf/{name}' --model_name NAME --model_flavor FLAVOR; with weights "
        "named as in transformers: put its config.json and tokenizer into the folder, then "
        f'{{python}} -c "import torch, torch.distributed.checkpoint as d; {AUTO}; '
        "m = A.from_config(C.from_pretrained('{folder}'), dtype=torch.float32); "
        "s = m.state_dict(); w = min(s); "
        "k = d.FileSystemReader('{place}').read_metadata().state_dict_metadata; "
        "p = next(p for n in k if n.endswith(w) "
        "for p in [n.removesuffix(w)] if all(p + m in k for m in s)); "
        "d.load({{p + n: s[n] for n in s}}, checkpoint_id='{place}'); "
        "m.save_pretrained('{folder}')\"",
    ),
    Format(
        "weights of Megatron-LM",
        ("mp_rank_*/model_optim_rng.pt", "model_optim_rng.pt", "*/mp_rank_*/model_optim_rng.pt"),
        "convert it with tools/checkpoint/convert.py of Megatron-LM",
    ),
    Format(
        "its weights in .bin files, which can run code when they are read",
        ("pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json"),
        f'convert them: {{python}} -c "{AUTO}; '
        "A.from_pretrained('{folder}').save_pretrained('{folder}')\"",
    ),
    Format(
        "a checkpoint such as those of nanoGPT or plainLM",
        ("ckpt*.pt", "ckpt*.pth"),
        "copy its weights into a model of transformers with load_state_dict (those of nanoGPT "
        "into GPT2LMHeadModel, with transposed layers), then save_pretrained",
    ),
    Format(
        "weights of another program",
        (
            *("*.ckpt", "consolidated.*", "flax_model*.msgpack", "tf_model.h5", "*.nemo"),
            *("_CHECKPOINT_METADATA", "model*.pt", "model*.pth", "pytorch_model*", "step*.pt"),
            *("weights*.safetensors", "latest*.pt", "last*.pt", "final*.pt", "iter*.pt"),
        ),
        "convert it to a model of transformers, then save_pretrained",
    ),
)


def recognized(folder: Path) -> str | None:
    """Return what another program left in a folder, and what converts it; None for other files."""
    for kind in FORMATS:
        for file in kind.files:
            if first := min(folder.glob(file), default=None):
                names = {"folder": folder, "name": folder.name, "parent": folder.parent}
                names |= {"file": first.name, "place": first.parent, "python": sys.executable}
                return f"{kind.name}; {kind.conversion.format(**names)}"
    return None


# Classes that predict the next token, with or without images, and those without a head.
CAUSAL = re.compile("CausalLM|LMHead|DoubleHeads|ConditionalGeneration|Decoder|Model$")
# Types that see both sides unless is_decoder is set, although transformers loads them as causal.
BIDIRECTIONAL = frozenset(
    {
        *("bert", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert"),
        *("reformer", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm"),
        *("xlm-roberta", "xlm-roberta-xl", "xmod"),
    }
)


# Classes of auto_map that a model needs; one of transformers may lack the first.
PARTS = ("AutoConfig", "AutoModelForCausalLM")


def misfit(config: Mapping[str, object], code: Collection[str] | None = None) -> str | None:
    """Return why a model with this config.json is no causal model of transformers, or None. `code`
    has the names of its files of code; None if none may run."""
    kind, classes = str(config.get("model_type", "")), config.get("architectures")
    names = [str(name) for name in classes] if isinstance(classes, list) else []
    if not kind:
        return "has a config.json without model_type, so no model of transformers"
    if config.get("is_encoder_decoder"):
        return f"holds an encoder and a decoder ({kind}); only causal language models are measured"
    auto = config.get("auto_map")
    auto = auto if isinstance(auto, Mapping) else {}
    if code is not None and auto:
        return _lacking({part: str(auto[part]) for part in PARTS if part in auto}, code)
    if names and not any(map(CAUSAL.search, names)) and PARTS[-1] not in auto:
        return f"holds a {names[0]}; only causal language models are measured"
    if kind in BIDIRECTIONAL and not config.get("is_decoder") and not config.get("causal"):
        return f"holds an encoder ({kind}); only causal language models are measured"
    heads, shared = (config.get(f"num_{key}_heads") for key in ("attention", "key_value"))
    if isinstance(heads, int) and isinstance(shared, int) and shared and heads % shared:
        why = f"has num_key_value_heads {shared}, which does not divide {heads} heads"
        return f"{why}; correct config.json"
    return None


def _lacking(auto: Mapping[str, str], code: Collection[str]) -> str | None:
    if PARTS[-1] not in auto:
        return f"has no {PARTS[-1]} in the auto_map of config.json; register the class, and save it"
    for place in auto.values():
        file = f"{place.rpartition('--')[2].partition('.')[0]}.py"
        if "--" in place:
            why = f"names code of another repository ({place})"
            return f"{why}; copy {file} into the folder, and name it without the repository"
        if file not in code:
            return f"lacks {file}, which auto_map names; copy it into the folder"
    return None


def unknown(config: Mapping[str, object], code: Collection[str] | None) -> str | None:
    """Return why transformers cannot read a model, if it has no such type, and the model no `code`
    that may run."""
    # Importing transformers takes a second; this file of it holds plain names.
    library = distribution("transformers")
    names = run_path(str(library.locate_file("transformers/models/auto/auto_mappings.py")))
    kind, auto = str(config.get("model_type")), config.get("auto_map")
    if kind in ("None", *names["CONFIG_MAPPING_NAMES"]) or (auto and code is not None):
        return None
    if auto:
        return f"needs code of its own for {kind}; --trust-remote-code lets it run"
    mend = "register its classes with register_for_auto_class, save it, and --trust-remote-code"
    return f"has the type {kind}, which transformers {library.version} lacks; {mend}"
