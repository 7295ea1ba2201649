"""GPTQ by a library in an environment of its own: this side of foreign/worker.py."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ptq_dynamics.base.fields import Rate
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import processes
from ptq_dynamics.engine.context import Context
from ptq_dynamics.quantize import environment
from ptq_dynamics.quantize.calibration import Calibration, Quantized
from ptq_dynamics.quantize.methods import Calibrated, Grouped

if TYPE_CHECKING:
    from torch import Tensor

    from ptq_dynamics.models.packed import Grid

SCRIPT = Path(__file__).parent / "foreign/worker.py"


class ForeignGptq(Calibrated, Grouped):
    """GPTQ by the library that `tool` names."""

    bits: Literal[2, 3, 4, 8]
    symmetric: bool
    activation_order: bool
    static_groups: bool
    damping: Rate
    damping_increment: Annotated[float, Field(ge=0)]
    true_sequential: bool
    mse: Annotated[float, Field(ge=0)]

    @property
    def compared_bits(self) -> int | None:
        """Its bits."""
        return self.bits

    def each(
        self, folders: Sequence[Path], calibration: Calibration, context: Context[Any]
    ) -> Iterator[Quantized]:
        """All by one process, so that the library is imported once."""
        targets = [context.scratch / f"by-tool-{number}" for number in range(len(folders))]
        self._run(folders, targets, calibration, context)
        return map(self._read, targets, folders)

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """Checkpoints are quantized by `each`, which knows the environment."""
        raise NotImplementedError

    def request(
        self, folders: Sequence[Path], targets: Sequence[Path], tokens: Path, together: int
    ) -> dict[str, Any]:
        """What the script is asked for."""
        from ptq_dynamics import models

        settings = self.model_dump(exclude={"method", "draw"})
        pairs = zip(folders, targets, strict=True)
        return {
            "tool": self.tool,
            "checkpoints": [[str(each.resolve()) for each in pair] for pair in pairs],
            "calibration": str(tokens.resolve()),
            "device": models.device().type,
            "settings": {**settings, "batch_size": together},
        }

    def _run(
        self,
        folders: Sequence[Path],
        targets: Sequence[Path],
        calibration: Calibration,
        context: Context[Any],
    ) -> None:
        import numpy as np

        for target in targets:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
        tokens, request = context.scratch / "calibration.npy", context.scratch / "request.json"
        np.save(tokens, calibration.tokens.numpy())
        content = self.request(folders, targets, tokens, calibration.together)
        request.write_text(json.dumps(content))
        interpreter = environment.python(context.input("environment")).absolute()
        done = processes.run([str(interpreter), str(SCRIPT), str(request.resolve())], os.environ)
        if context.progress.log is not None:
            context.progress.log.write(done.stderr)
        if done.returncode:
            last = (done.stderr.splitlines() or [f"it ended with {done.returncode}"])[-1]
            raise Problem(f"{self.tool}: {last.removeprefix('error: ')}")

    def _read(self, target: Path, folder: Path) -> Quantized:
        """One checkpoint, as the script left it; `Problem` where the tool gave up on GPTQ."""
        from dataclasses import replace

        from safetensors.torch import load_file

        from ptq_dynamics.quantize.storage import on_grids

        report = json.loads((target / "report.json").read_text(encoding="utf-8"))
        if layers := report["fallback_layers"]:
            raise Problem(
                f"the tool rounded {', '.join(layers)} of {folder} instead of GPTQ, since its "
                "Hessian cannot be inverted; raise damping or the calibration set"
            )
        tensors = load_file(target / "weights.safetensors")
        names = [key.removesuffix(".codes") for key in tensors if key.endswith(".codes")]
        found = on_grids({name: _grid(name, tensors, self.bits) for name in names})
        return replace(found, raised_damping=report["raised_damping"])


def _grid(name: str, tensors: "Mapping[str, Tensor]", bits: int) -> "Grid":
    """A layer of a worker's result; there, codes and zero points are from 0 on."""
    import torch

    from ptq_dynamics.models.packed import Grid
    from ptq_dynamics.quantize.storage import exact

    codes, zeros = (
        (tensors[f"{name}.{part}"].short() - (1 << bits - 1)).to(torch.int8)
        for part in ("codes", "zeros")
    )
    given = tensors[f"{name}.g_idx"]
    grid = Grid(bits, codes, tensors[f"{name}.scales"], zeros if zeros.any() else None)
    columns = None if torch.equal(given, grid.groups()) else given
    grid = Grid(bits, codes, grid.scales, grid.zeros, columns)
    return exact(name, grid, tensors[f"{name}.weight"])
