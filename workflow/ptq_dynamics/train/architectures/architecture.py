"""A fresh model of any architecture."""

from importlib import import_module
from typing import Any

import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedModel

from ptq_dynamics.train.settings import ModelSettings, read


def create(settings: ModelSettings, seed: int) -> PreTrainedModel:
    """A freshly initialised model in float32."""
    kind: Any = import_module(f"ptq_dynamics.train.architectures.{settings.architecture}")
    made = kind.config(read(kind.Settings, settings.shape), settings.vocabulary, settings.context)
    torch.manual_seed(seed)
    own: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(made)]
    model: PreTrainedModel = own(made)
    return model
