"""Quantize checkpoints with GPTQModel, the tool of the paper (section 3), in its own environment.

    ENVPYTHON gptqmodel_worker.py request.json [--verbose]

The layers are read from the library's own packed result: integer codes and zero points as packed,
scales in float16, the only precision in which GPTQModel stores them. The model itself runs in
float32. `weight` is computed from those stored values in float32, so the identity is exact.
Results are equal to the byte from run to run at an equal OMP_NUM_THREADS.
"""

from __future__ import annotations

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

# Before the import of the library, which reads them once. Its default on one or two cores is one
# worker, and then it refuses to start its own thread pool;
os.environ["GPTQMODEL_CPU_WORKERS"] = "2"
# results must not depend on whether a machine has a compiler to build the optional kernels with.
os.environ["GPTQMODEL_DISABLE_PACK_EXT"] = "1"
os.environ["GPTQMODEL_DISABLE_GPTQ_CUDA"] = "1"

import torch


class GPTQModelBackend:
    """GPTQModel with every setting that bears on the result passed explicitly."""

    library = "gptqmodel"

    def __init__(self, job: Job) -> None:
        import gptqmodel
        from gptqmodel.models.auto import MODEL_MAP, SUPPORTED_MODELS
        from gptqmodel.nn_modules.qlinear.torch import TorchLinear

        if job.device == "cuda" and not torch.cuda.is_available():
            raise JobError("device: cuda is not available")
        groups = TorchLinear.SUPPORTS_GROUP_SIZE
        if job.settings.group_size not in groups:
            raise JobError(f"setting group_size: {job.settings.group_size} is not one of {groups}")
        # OLMo-1, which the library does not define, has the layers of llama by name and order.
        MODEL_MAP["olmo"] = MODEL_MAP["llama"]
        SUPPORTED_MODELS.append("olmo")
        self.version = gptqmodel.__version__

    def check(self, source: Path, job: Job) -> None:
        """Check architecture, calibration and layer widths on a model without weights."""
        from gptqmodel.models.auto import check_and_get_model_definition
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.from_pretrained(source)
        definition = check_and_get_model_definition(str(source), False)
        if definition.module_tree is None:
            # It would take the layers in the order of its own search, not of the computation.
            raise JobError(f"architecture: the library has no definition of {config.model_type}")
        check_calibration(job.calibration, config)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        check_blocks(model, definition, job)

    def quantize(self, source: Path, job: Job) -> tuple[dict[str, Layer], dict[str, Any]]:
        """Load in float32, quantize, and read the packed layers."""
        from gptqmodel import BACKEND, GPTQModel

        wrapped = GPTQModel.load(
            str(source),
            quantize_config(job),
            backend=BACKEND.GPTQ_TORCH,
            trust_remote_code=False,
            dtype=torch.float32,
        )
        # Again on the loaded model: the library splits fused experts into linear layers.
        check_blocks(wrapped.model, wrapped, job)
        log = wrapped.quantize(
            calibration=[
                {"input_ids": row, "attention_mask": torch.ones_like(row)}
                for row in map(torch.from_numpy, job.sequences())
            ],
            calibration_concat_size=None,
            calibration_sort=None,
            calibration_data_min_length=0,
            batch_size=job.settings.batch_size,
            backend=BACKEND.GPTQ_TORCH,
        )
        layers = {
            path: read_layer(module)
            for path, module in wrapped.model.named_modules()
            if hasattr(module, "qweight")
        }
        effective = effective_settings(wrapped.quantize_config, log)
        return layers, effective | {"batch_size": job.settings.batch_size}


def quantize_config(job: Job) -> Any:
    """The library's configuration for a job; every setting that bears on the result is stated."""
    from gptqmodel import QuantizeConfig
    from gptqmodel.quantization.config import (
        FORMAT,
        METHOD,
        Fallback,
        FallbackStrategy,
        HessianConfig,
    )

    settings = job.settings
    return QuantizeConfig(
        method=METHOD.GPTQ,
        # The two GPTQ formats hold the same codes; version 2 can hold a zero point of 0 as well.
        format=FORMAT.GPTQ_V2,
        pack_dtype=torch.int32,
        bits=settings.bits,
        group_size=settings.group_size,
        sym=settings.symmetric,
        desc_act=settings.activation_order,
        # A newer ordering that the library turns on by itself where desc_act is off.
        act_group_aware=False,
        static_groups=settings.static_groups,
        damp_percent=settings.damping,
        damp_auto_increment=settings.damping_increment,
        true_sequential=settings.true_sequential,
        mse=settings.mse,
        lm_head=False,
        dynamic=None,
        rotation=None,
        gptaq=None,
        foem=None,
        # For experts that almost no token reaches; `fallback_layers` of the report names them.
        fallback=Fallback(strategy=FallbackStrategy.RTN, threshold="0.5%", smooth=None),
        hessian=HessianConfig(staging_dtype=torch.float32),
        device="cuda:0" if job.device == "cuda" else "cpu",
        auto_forward_data_parallel=False,
        offload_to_disk=False,
    )


def check_blocks(model: torch.nn.Module, definition: Any, job: Job) -> None:
    """Check the widths of the layers that the library's model definition names."""
    groups = definition.simple_layer_modules(model.config, None)
    names = {name for group in groups for name in group}
    for blocks in definition.extract_layers_node():
        check_widths(model, blocks, names, job.settings)


def read_layer(module: Any) -> Layer:
    """Unpack a quantized module: qweight int32 [in * bits / 32, out], qzeros int32
    [groups, out * bits / 32], scales float16 [groups, out], g_idx int32 [in]."""
    return Layer(
        codes=unpack(module.qweight.cpu().numpy().T, module.bits),
        scales=module.scales.cpu().float().numpy().T,
        # As they are: the module's `qzero_format()` says "less one" whatever the format is.
        zeros=unpack(module.qzeros.cpu().numpy(), module.bits).T.astype("int32"),
        g_idx=module.g_idx.cpu().numpy(),
    )


def effective_settings(config: Any, log: dict[str, list[dict[str, str]]]) -> dict[str, Any]:
    """What the library's configuration says after the run, and what the log says it changed."""
    if config.mock_quantization:
        raise JobError("calibration: a layer's loss was not a number, the library gave up on GPTQ")
    fallback, raised = [], {}
    for entry in log["gptq"]:
        name = f"{entry['layer']}.{entry['module']}"
        if "fallback" in entry["loss"]:
            fallback.append(name)
        elif float(entry["damp"]) != round(config.damp_percent, 5):
            raised[name] = float(entry["damp"])
    return {
        "bits": config.bits,
        "group_size": config.group_size,
        "symmetric": config.sym,
        "activation_order": config.desc_act,
        "act_group_aware": config.act_group_aware,
        "static_groups": config.static_groups,
        "damping": config.damp_percent,
        "damping_increment": config.damp_auto_increment,
        "true_sequential": config.true_sequential,
        "mse": config.mse,
        "format": str(config.format.value),
        "model_dtype": "float32",
        "scale_dtype": "float16",
        "fallback_layers": fallback,
        "raised_damping": raised,
    }


if __name__ == "__main__":
    raise SystemExit(main(GPTQModelBackend))
