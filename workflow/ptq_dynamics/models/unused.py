"""Weights in a file that a model has no use for; transformers would continue without them."""

import re
from collections.abc import Iterable

from transformers import PreTrainedModel

# Saved by earlier versions of transformers.
BUFFERS = ("inv_freq", "masked_bias", "cos_cached", "sin_cached")
# Parts of models of more than text, or of other outputs.
OTHER_PARTS = re.compile(
    "vis|vq|image|audio|speech|project|connector|align|sampler|merger|qformer|pool|head|mtp|nextn"
)


def unused(model: PreTrainedModel, names: Iterable[str]) -> list[str]:
    """Return the weights among `names` that a model lacks, inside or beside its layers. Logits need
    no buffers, other heads or modalities, and no layers that predict further tokens."""
    modules, config = dict(model.named_modules()), model.config.get_text_config()
    base = model.base_model_prefix  # names lack it if the model was saved without its head
    layers = getattr(config, "num_hidden_layers", 0)
    further = range(layers, layers + (getattr(config, "num_nextn_predict_layers", None) or 0))

    def counts(name: str) -> bool:
        place, _, last = name.removeprefix(f"{base}.").rpartition(".")
        parts = place.split(".")
        parent = modules.get(f"{base}.{place}") or modules.get(place)
        is_beside = name.startswith(f"{base}.") and not OTHER_PARTS.search(place)
        is_inside = is_beside or f"{base}.{parts[0]}" in modules or parts[0] in modules
        is_further = any(part.isdigit() and int(part) in further for part in parts[:3])
        # A module without weights of its own, such as attention, has only buffers, such as masks.
        is_weight = parent is None or bool([*parent.parameters(recurse=False)])
        return is_inside and is_weight and not is_further and last not in BUFFERS

    known = model.state_dict()  # with rotations, which `models._rotate` has added
    return [name for name in names if name not in known and counts(name)]
