"""GPTQ in libraries that need an environment of their own, where `foreign/worker.py` runs them."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

from ptq_dynamics.base import needs
from ptq_dynamics.base.fields import Rate
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import subprocesses
from ptq_dynamics.engine.context import Context
from ptq_dynamics.quantize import environment
from ptq_dynamics.quantize.methods import Calibrated, Calibration, Grouped, Quantized

SCRIPT = Path(__file__).parent / "foreign/worker.py"


class ForeignGptq(Calibrated, Grouped):
    """The base class of GPTQ by another library; `envs/METHOD.txt` locks its environment."""

    scripts: ClassVar[tuple[str, ...]] = ("quantize.foreign.worker",)
    # The only Python for which the library has wheels, or None if any can install it.
    python: ClassVar[str | None] = None
    # The difference between zero points and packed zero points.
    less: ClassVar[int] = 0

    bits: Literal[2, 3, 4, 8]
    symmetric: bool
    activation_order: bool
    static_groups: bool
    damping: Rate
    true_sequential: bool

    def quantize_all(
        self, folders: Sequence[Path], calibration: Calibration, context: Context[object]
    ) -> Iterator[Quantized]:
        """Quantize all checkpoints in one process, which imports the library once."""
        import numpy as np
        from safetensors.torch import load_file

        from ptq_dynamics import models
        from ptq_dynamics.models import packed
        from ptq_dynamics.quantize.storage import on_grids

        if any(models.configuration(folder).get(models.SOFTCAP) for folder in folders):
            raise Problem(f"{self.method} may ignore {models.SOFTCAP}, as sdpa does; use gptq")
        scratch = context.scratch.resolve()
        targets = [scratch / f"by-tool-{number}" for number in range(len(folders))]
        for target in targets:
            target.mkdir(exist_ok=True)
        tokens, request = scratch / "calibration.npy", scratch / "request.json"
        np.save(tokens, calibration.tokens.numpy())
        settings = self.model_dump(exclude={"method", "draw"})
        sources = [folder.resolve() for folder in folders]
        job = {
            "tool": self.method,
            "checkpoints": [*zip(sources, targets, strict=True)],
            "calibration": tokens,
            "device": models.device().type,
            "settings": {**settings, "batch_size": calibration.together},
        }
        request.write_text(json.dumps(job, default=str))
        interpreter = environment.python(context.input(needs.ENVIRONMENT)).absolute()
        done = subprocesses.run([str(interpreter), str(SCRIPT), str(request)], os.environ)
        if context.progress.log is not None:
            context.progress.log.write(done.stderr)
        if done.returncode:
            last = (done.stderr.splitlines() or [f"it ended with {done.returncode}"])[-1]
            raise Problem(f"{self.method}: {last.removeprefix('error: ')}")
        for target in targets:
            raised = json.loads((target / "raised_damping.json").read_text(encoding="utf-8"))
            grids = packed.gptq(load_file(target / "weights.safetensors"), self.bits, self.less)
            yield replace(on_grids(grids), raised_damping=raised)
