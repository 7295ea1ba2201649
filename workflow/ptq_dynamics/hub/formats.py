"""Checkpoints in formats of other programs, which config/formats.yaml lists, and models that are no
causal language models of transformers."""

import re
import sys
from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import distribution, version
from pathlib import Path
from runpy import run_path

import yaml

from ptq_dynamics.engine.checkout import ROOT


def recognized(folder: Path) -> str | None:
    """Return what another program left in a folder, and what converts it; None for other files."""
    for entry in yaml.safe_load((ROOT / "config/formats.yaml").read_text(encoding="utf-8")):
        for pattern in entry["files"]:
            if first := min(folder.glob(pattern), default=None):
                names = {"folder": folder, "name": folder.name, "parent": folder.parent}
                names |= {"file": first.name, "place": first.parent, "python": sys.executable}
                return f"{entry['format']}; {entry['conversion'].format(**names)}"
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
    kind, classes = str(config.get("model_type") or ""), config.get("architectures")
    names = [str(name) for name in classes] if isinstance(classes, list) else []
    if not kind:
        return "has a config.json without model_type, so no model of transformers"
    auto = config.get("auto_map")
    auto = auto if isinstance(auto, Mapping) else {}
    if kind not in _types() and (code is None or not auto):
        return _unknown(kind, has_code=bool(auto))
    if config.get("is_encoder_decoder"):
        return f"holds an encoder and a decoder ({kind}); only causal language models are measured"
    if auto and code is not None:
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


@cache
def _types() -> frozenset[str]:
    # Importing transformers takes a second; this file of it holds plain names.
    file = distribution("transformers").locate_file("transformers/models/auto/auto_mappings.py")
    return frozenset(run_path(str(file))["CONFIG_MAPPING_NAMES"])


def _unknown(kind: str, *, has_code: bool) -> str:
    if has_code:
        return f"needs code of its own for {kind}; --trust-remote-code lets it run"
    mend = "register its classes with register_for_auto_class, save it, and --trust-remote-code"
    return f"has the type {kind}, which transformers {version('transformers')} lacks; {mend}"
