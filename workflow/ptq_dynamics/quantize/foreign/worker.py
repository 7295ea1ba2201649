"""Quantize checkpoints with GPTQModel (section 3) or AutoGPTQ: `ENVPYTHON worker.py request.json`.

The worker runs inside the locked environment of the library and imports nothing of the package.
Equal OMP_NUM_THREADS give equal bytes."""

import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace as Settings
from typing import TYPE_CHECKING, Any

# GPTQModel reads these when it is imported. Its thread pool does not start with one worker.
os.environ["GPTQMODEL_CPU_WORKERS"] = "2"
# Optional kernels need a compiler, and results must not depend on whether one is installed.
os.environ["GPTQMODEL_DISABLE_PACK_EXT"] = "1"
os.environ["GPTQMODEL_DISABLE_GPTQ_CUDA"] = "1"
# With this variable, AutoGPTQ writes intermediate values into weights.
os.environ.pop("DEBUG", None)

import numpy as np
import torch
from safetensors.torch import save_file

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Batches = list[dict[str, torch.Tensor]]
Outcome = tuple[torch.nn.Module, dict[str, float]]  # raised damping by layer
PACKED = ("qweight", "qzeros", "scales", "g_idx")  # tensors of a quantized module


class JobError(Exception):
    """An invalid request; the message names the setting or the layer."""


def by_gptqmodel(settings: Settings, device: str, source: Path, calibration: Batches) -> Outcome:
    """Quantize a checkpoint with explicit settings."""
    from gptqmodel import BACKEND, GPTQModel, QuantizeConfig
    from gptqmodel.models.auto import MODEL_MAP, SUPPORTED_MODELS, check_and_get_model_definition
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.quantization import config as options

    if settings.group_size not in (sizes := TorchLinear.SUPPORTS_GROUP_SIZE):
        raise JobError(f"setting group_size: {settings.group_size} is not one of {sizes}")
    # The library does not define OLMo-1, whose layers have the names and the order of Llama.
    MODEL_MAP["olmo"] = MODEL_MAP["llama"]
    if "olmo" not in SUPPORTED_MODELS:
        SUPPORTED_MODELS.append("olmo")
    # Without a definition, the library would choose an order of layers itself.
    if check_and_get_model_definition(str(source), False).module_tree is None:
        raise JobError(f"architecture: the library does not define the architecture of {source}")
    rounding = options.FallbackStrategy.RTN
    config = QuantizeConfig(
        method=options.METHOD.GPTQ,
        # Version 2 can represent a zero point of 0.
        format=options.FORMAT.GPTQ_V2,
        pack_dtype=torch.int32,
        bits=settings.bits,
        group_size=settings.group_size,
        sym=settings.symmetric,
        desc_act=settings.activation_order,
        # The library turns this ordering on by default if desc_act is off.
        act_group_aware=False,
        static_groups=settings.static_groups,
        damp_percent=settings.damping,
        damp_auto_increment=settings.damping_increment,
        true_sequential=settings.true_sequential,
        mse=settings.mse,
        lm_head=False,
        **dict.fromkeys(("dynamic", "rotation", "gptaq", "foem")),
        # Almost no token reaches some experts; such layers are refused below.
        fallback=options.Fallback(strategy=rounding, threshold="0.5%", smooth=None),
        hessian=options.HessianConfig(staging_dtype=torch.float32),
        device="cuda:0" if device == "cuda" else "cpu",
        auto_forward_data_parallel=False,
        offload_to_disk=False,
    )
    backend, plain = BACKEND.GPTQ_TORCH, {"trust_remote_code": False, "dtype": torch.float32}
    wrapped = GPTQModel.load(str(source), config, backend=backend, **plain)
    log = wrapped.quantize(
        calibration=calibration,
        calibration_concat_size=None,
        calibration_sort=None,
        calibration_data_min_length=0,
        batch_size=settings.batch_size,
        backend=backend,
    )
    if wrapped.quantize_config.mock_quantization:
        raise JobError("calibration: the loss of a layer was NaN, so the library stopped GPTQ")
    by_layer = {f"{entry['layer']}.{entry['module']}": entry for entry in log["gptq"]}
    if rounded := [name for name, entry in by_layer.items() if "fallback" in entry["loss"]]:
        raise JobError(
            f"the library rounded {', '.join(rounded)} of {source} to nearest, because the Hessian "
            "cannot be inverted; raise damping or the calibration set"
        )
    damping = {name: float(entry["damp"]) for name, entry in by_layer.items()}
    usual = round(settings.damping, 5)
    return wrapped.model, {name: value for name, value in damping.items() if value != usual}


def by_autogptq(settings: Settings, device: str, source: Path, calibration: Batches) -> Outcome:
    """Quantize a checkpoint with explicit settings.
    On a CPU, this goes around the library's own check for CUDA."""
    from auto_gptq import BaseQuantizeConfig
    from auto_gptq.modeling import GPTQ_CAUSAL_LM_MODEL_MAP, _base

    if device == "cpu":
        # The library's from_pretrained refuses a machine without CUDA, and its loop moves layers to
        # this device. The arithmetic is plain PyTorch.
        _base.CUDA_0 = torch.device("cpu")
        torch.cuda.synchronize = lambda device=None: None
    config = BaseQuantizeConfig(
        bits=settings.bits,
        group_size=settings.group_size,
        damp_percent=settings.damping,
        desc_act=settings.activation_order,
        static_groups=settings.static_groups,
        sym=settings.symmetric,
        true_sequential=settings.true_sequential,
    )
    model = load_checkpoint(source, GPTQ_CAUSAL_LM_MODEL_MAP)
    torch.nn.Module.to(model, device)
    kind = GPTQ_CAUSAL_LM_MODEL_MAP[model.config.model_type]
    wrapped = kind(model, quantized=False, quantize_config=config)
    wrapped.quantize(calibration, batch_size=settings.batch_size, use_cuda_fp16=False)
    for path, layer in wrapped.model.named_modules():
        # Otherwise the library drops the last codes or zero points.
        if hasattr(layer, "qweight") and (layer.infeatures % 32 or layer.outfeatures % 32):
            widths = f"{layer.infeatures} and {layer.outfeatures}"
            raise JobError(f"{path} of {source}: widths {widths} are not multiples of 32")
    # The library raises an error if a Hessian cannot be inverted.
    return wrapped.model, {}


def load_checkpoint(source: Path, known: Collection[str]) -> "PreTrainedModel":
    """Load a checkpoint of transformers 5, of one of the `known` types, with transformers 4.
    This version would ignore `rope_parameters`, and would draw weights of unknown names."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    entries = json.loads((source / "config.json").read_text(encoding="utf-8"))
    if (kind := entries.pop("model_type")) not in known:
        raise JobError(f"architecture: {kind} is not one of {', '.join(known)}")
    if len({*(entries.get("layer_types") or ())}) > 1:
        raise JobError(f"{source} has layer_types, which transformers 4 does not tell apart")
    rope = dict(entries.pop("rope_parameters", None) or {})
    if "rope_theta" in rope:
        entries["rope_theta"] = entries["rotary_emb_base"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        factor = rope.pop("partial_rotary_factor")
        entries["partial_rotary_factor"] = entries["rotary_pct"] = factor
    if rope.get("rope_type", "default") != "default":
        entries["rope_scaling"] = rope
    # Its type has no pair of a model and what was loaded.
    pair: Any = AutoModelForCausalLM.from_pretrained(
        source,
        config=CONFIG_MAPPING[kind](**entries),
        torch_dtype=torch.float32,
        output_loading_info=True,
    )
    model, loaded = pair
    if missing := loaded["missing_keys"]:
        raise JobError(f"{source} has no {missing[0]}, which transformers 4 asks for")
    return model.eval()


TOOLS = {"gptqmodel": by_gptqmodel, "autogptq": by_autogptq}


def run(request: dict[str, Any]) -> None:
    """Quantize all checkpoints of a request."""
    quantize = TOOLS[request["tool"]]
    # Short sequences are padded with -1.
    rows = [torch.from_numpy(row[row >= 0]) for row in np.load(request["calibration"])]
    calibration = [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in rows]
    for source, target in request["checkpoints"]:
        settings = Settings(**request["settings"])
        model, raised_damping = quantize(settings, request["device"], Path(source), calibration)
        tensors = {
            f"{path}.{part}": getattr(module, part).cpu().contiguous()
            for path, module in model.named_modules()
            if hasattr(module, "qweight")
            for part in PACKED
        }
        if not tensors or not all(tensor.isfinite().all() for tensor in tensors.values()):
            raise JobError(f"{source}: the library returned no layer, or no finite weights")
        save_file(tensors, Path(target, "weights.safetensors"))
        Path(target, "raised_damping.json").write_text(json.dumps(raised_damping), encoding="utf-8")


def main() -> int:
    """Run a request; return 0, or 1 after printing one `error:` line."""
    # Only the worker prints to stderr; the output of libraries is dropped.
    stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8")
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    # GPTQModel writes logs to the working directory.
    os.chdir(Path(sys.argv[1]).parent)
    try:
        run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    except Exception as error:
        kind = "" if isinstance(error, JobError) else f"{type(error).__name__}: "
        print("error:", kind + " ".join(str(error).split()), file=stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
