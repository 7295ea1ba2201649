"""Quantize checkpoints with AutoGPTQ, GPTQModel's archived predecessor, in its own environment.

    ENVPYTHON autogptq_worker.py request.json [--verbose]

The layers are read from the library's own packed result: integer codes and zero points as packed,
scales in float32, since the library stores them in the precision of the model, and the model is
loaded in float32. `weight` is computed from those values in float32, so the identity is exact.
Results are equal to the byte from run to run at an equal OMP_NUM_THREADS.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from worker_protocol import (
    Job,
    JobError,
    Layer,
    check_calibration,
    check_widths,
    main,
    unpack,
)

# The library writes debugging state into the layers where this is set.
os.environ.pop("DEBUG", None)

import torch


class AutoGPTQBackend:
    """AutoGPTQ; it has no damping increment (a Hessian that stays singular is an error)."""

    library = "auto-gptq"

    def __init__(self, job: Job) -> None:
        import auto_gptq
        from auto_gptq.modeling import _base

        settings = job.settings
        if settings.mse != 0.0:
            raise JobError(f"setting mse: {settings.mse}, this library has no search (0 only)")
        if not settings.symmetric:
            # Zero points are packed less one, so that a zero point of 0 spoils its neighbours.
            raise JobError("setting symmetric: false, this library cannot store a zero point of 0")
        if job.device == "cuda" and not torch.cuda.is_available():
            raise JobError("device: cuda is not available")
        if job.device == "cpu":
            # Goes around a guard of the library, which quantizes on CUDA only: from_pretrained
            # refuses a machine without CUDA, and the loop moves every layer to this device. The
            # arithmetic itself is plain PyTorch and device-independent.
            _base.CUDA_0 = torch.device("cpu")
            # The solver waits for the device after each layer; without CUDA that call raises.
            torch.cuda.synchronize = lambda device=None: None
        self.version = auto_gptq.__version__

    def check(self, source: Path, job: Job) -> None:
        """Check architecture, calibration and layer widths on a model without weights."""
        from transformers import AutoModelForCausalLM

        config = read_config(source)
        check_calibration(job.calibration, config)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        described = model_class(config.model_type)
        names = {name for group in described.inside_layer_modules for name in group}
        check_widths(model, described.layers_block_name, names, job.settings)

    def quantize(self, source: Path, job: Job) -> tuple[dict[str, Layer], dict[str, Any]]:
        """Load in float32, quantize, and read the packed layers."""
        from auto_gptq import BaseQuantizeConfig
        from transformers import AutoModelForCausalLM

        settings = job.settings
        config = read_config(source)
        asked = BaseQuantizeConfig(
            bits=settings.bits,
            group_size=settings.group_size,
            damp_percent=settings.damping,
            desc_act=settings.activation_order,
            static_groups=settings.static_groups,
            sym=settings.symmetric,
            true_sequential=settings.true_sequential,
            is_marlin_format=False,
        )
        model = AutoModelForCausalLM.from_pretrained(
            source, config=config, torch_dtype=torch.float32, trust_remote_code=False
        )
        wrapped = model_class(config.model_type)(
            model.eval().to(job.device), quantized=False, quantize_config=asked
        )
        wrapped.quantize(
            [
                {"input_ids": row, "attention_mask": torch.ones_like(row)}
                for row in map(torch.from_numpy, job.sequences())
            ],
            batch_size=settings.batch_size,
            use_triton=False,
            use_cuda_fp16=False,
            autotune_warmup_after_quantized=False,
            cache_examples_on_gpu=True,
        )
        modules = {
            path: module
            for path, module in wrapped.model.named_modules()
            if hasattr(module, "qweight")
        }
        layers = {path: read_layer(module) for path, module in modules.items()}
        stored = {str(module.scales.dtype).removeprefix("torch.") for module in modules.values()}
        used = wrapped.quantize_config
        return layers, {
            "bits": used.bits,
            "group_size": used.group_size,
            "symmetric": used.sym,
            "activation_order": used.desc_act,
            "static_groups": used.static_groups,
            "damping": used.damp_percent,
            "damping_increment": None,
            "true_sequential": used.true_sequential,
            "mse": 0.0,
            "batch_size": settings.batch_size,
            "model_dtype": "float32",
            "scale_dtype": ", ".join(sorted(stored)),
        }


def model_class(model_type: str) -> Any:
    """The library's description of an architecture."""
    from auto_gptq.modeling import GPTQ_CAUSAL_LM_MODEL_MAP

    if model_type not in GPTQ_CAUSAL_LM_MODEL_MAP:
        known = ", ".join(sorted(GPTQ_CAUSAL_LM_MODEL_MAP))
        raise JobError(f"architecture: {model_type} is not supported by this library, only {known}")
    return GPTQ_CAUSAL_LM_MODEL_MAP[model_type]


def read_config(source: Path) -> Any:
    """The model's configuration, of transformers 5 too, for this environment's transformers 4.

    Version 5 writes the rotary settings as one `rope_parameters`, which version 4 would ignore
    without a word, to use its defaults instead.
    """
    from transformers import CONFIG_MAPPING

    entries = json.loads((source / "config.json").read_text(encoding="utf-8"))
    model_type = entries.pop("model_type")
    rope = dict(entries.pop("rope_parameters", None) or {})
    if any(isinstance(value, dict) for value in rope.values()):
        raise JobError("config.json: rope_parameters differ by layer, which this library cannot do")
    if "rope_theta" in rope:
        entries["rope_theta"] = entries["rotary_emb_base"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        factor = rope.pop("partial_rotary_factor")
        entries["partial_rotary_factor"] = entries["rotary_pct"] = factor
    if rope.get("rope_type", "default") != "default":
        entries["rope_scaling"] = rope
    model_class(model_type)
    return CONFIG_MAPPING[model_type](**entries)


def read_layer(module: Any) -> Layer:
    """Unpack a quantized module: qweight int32 [in * bits / 32, out], qzeros int32
    [groups, out * bits / 32] (less one), scales float32 [groups, out], g_idx int32 [in]."""
    return Layer(
        codes=unpack(module.qweight.cpu().numpy().T, module.bits),
        scales=module.scales.cpu().float().numpy().T,
        zeros=unpack(module.qzeros.cpu().numpy(), module.bits).T.astype("int32") + 1,
        g_idx=module.g_idx.cpu().numpy(),
    )


if __name__ == "__main__":
    raise SystemExit(main(AutoGPTQBackend))
