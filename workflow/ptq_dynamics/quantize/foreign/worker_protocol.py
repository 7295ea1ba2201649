"""What the GPTQ workers share: the request, the packed GPTQ format and the result files.

A worker runs as a script inside the locked environment of its library and imports this sibling
file, so nothing here may need more than the standard library, numpy and safetensors.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np
from safetensors.numpy import save_file

PACKABLE_BITS = (2, 3, 4, 8)
WORD = 32  # bits of a packed word: both widths of a layer must be multiples to be stored


class JobError(Exception):
    """A request that cannot be carried out as stated; the text names the setting or the layer."""


@dataclass(frozen=True)
class Settings:
    """GPTQ settings; none has a default, because the libraries' defaults changed over time."""

    bits: int
    group_size: int
    symmetric: bool
    activation_order: bool
    static_groups: bool
    damping: float
    damping_increment: float
    true_sequential: bool
    mse: float
    batch_size: int


@dataclass(frozen=True)
class Job:
    """A request: (source, target) folders and calibration tokens, int64 [sequences, context],
    shorter sequences filled up with -1."""

    checkpoints: tuple[tuple[Path, Path], ...]
    calibration: np.ndarray
    device: str
    settings: Settings

    def sequences(self) -> list[np.ndarray]:
        """The calibration sequences without filling, int64 [length] each."""
        return [row[row >= 0] for row in self.calibration]


@dataclass(frozen=True)
class Layer:
    """A quantized layer; g_idx gives the group of each input."""

    codes: np.ndarray  # uint8 [out, in]
    scales: np.ndarray  # float32 [out, groups]
    zeros: np.ndarray  # int32 [out, groups]
    g_idx: np.ndarray  # int32 [in]

    @property
    def weight(self) -> np.ndarray:
        """float32 [out, in]: scales[o, g] * (codes[o, i] - zeros[o, g]) with g = g_idx[i]."""
        steps = self.codes.astype(np.float32) - self.zeros[:, self.g_idx].astype(np.float32)
        return self.scales[:, self.g_idx] * steps


class Backend(Protocol):
    """A library behind the worker's loop."""

    library: str
    version: str

    def check(self, source: Path, job: Job) -> None:
        """Raise JobError where the library cannot do what is asked."""

    def quantize(self, source: Path, job: Job) -> tuple[dict[str, Layer], dict[str, Any]]:
        """Layers by module path, and the settings that the library used."""


def unpack(words: np.ndarray, bits: int) -> np.ndarray:
    """int32 words [rows, n] to uint8 values [rows, n * 32 / bits].

    A row's values are one little-endian bit stream, also at 3 bit, 32 values in 3 words.
    """
    octets = np.ascontiguousarray(words, dtype="<i4").view(np.uint8)
    stream = np.unpackbits(octets, axis=1, bitorder="little")
    values = stream.reshape(len(words), -1, bits)
    return np.packbits(values, axis=2, bitorder="little")[:, :, 0]


def check_widths(model: Any, blocks: str, names: Collection[str], settings: Settings) -> None:
    """Refuse layers, `names` in every block, that the groups or the packed words do not fit."""
    for path, module in model.get_submodule(blocks).named_modules():
        if path.partition(".")[2] not in names:
            continue
        # GPT-2's Conv1D is the one layer that keeps its weight as [in, out].
        transposed = type(module).__name__ == "Conv1D"
        outputs, inputs = module.weight.shape[:: -1 if transposed else 1]
        group, name = settings.group_size, f"{blocks}.{path}"
        if group != -1 and (group <= 0 or inputs % group):
            raise JobError(f"group_size {group} does not divide the input width {inputs} of {name}")
        for side, width in (("input", inputs), ("output", outputs)):
            if width % WORD:
                raise JobError(f"{name}: {side} width {width} is not a multiple of {WORD}")


def check_calibration(tokens: np.ndarray, config: Any) -> None:
    """Refuse tokens that the model's configuration has no position or embedding for."""
    context = getattr(config, "max_position_embeddings", None)
    if context is not None and tokens.shape[1] > context:
        raise JobError(f"calibration: {tokens.shape[1]} tokens a sequence, the model has {context}")
    if not -1 <= tokens.min() <= tokens.max() < config.vocab_size:
        raise JobError(f"calibration: token {tokens.max()} outside the vocabulary")


def read_job(path: Path) -> Job:
    """Parse a request file; every field is required."""
    request = json.loads(path.read_text(encoding="utf-8"))
    given = request["settings"]
    kinds = {field.name: str(field.type) for field in fields(Settings)}
    for name in sorted(kinds.keys() ^ given.keys()):
        raise JobError(f"setting {name} is {'missing' if name in kinds else 'unknown'}")
    for name, kind in kinds.items():
        found = type(given[name]).__name__
        if found != kind and (found, kind) != ("int", "float"):
            raise JobError(f"setting {name}: {given[name]!r} is not of type {kind}")
    if given["bits"] not in PACKABLE_BITS:
        raise JobError(f"setting bits: {given['bits']} is not one of {PACKABLE_BITS}")
    if given["batch_size"] < 1:
        raise JobError("setting batch_size: it must be positive")
    if request["device"] not in ("cpu", "cuda"):
        raise JobError(f"device: {request['device']!r} is neither cpu nor cuda")
    tokens = np.load(request["calibration"])
    if tokens.ndim != 2 or tokens.dtype != np.int64 or not tokens.size:
        raise JobError(
            f"calibration: {tokens.dtype} {tokens.shape}, not int64 [sequences, context]"
        )
    pairs = tuple((Path(pair["source"]), Path(pair["target"])) for pair in request["checkpoints"])
    for source, target in pairs:
        if not (source / "config.json").is_file() or not target.is_dir() or any(target.iterdir()):
            raise JobError(f"{source} has no config.json, or {target} is not an empty folder")
    return Job(pairs, tokens, request["device"], Settings(**given))


def write_result(
    target: Path, backend: Backend, layers: Mapping[str, Layer], settings: Mapping[str, Any]
) -> None:
    """Write weights.safetensors, then report.json, whose presence says that the pair is whole."""
    tensors = {
        f"{path}.{part}": np.ascontiguousarray(getattr(layer, part))
        for path, layer in layers.items()
        for part in ("weight", "codes", "scales", "zeros", "g_idx")
    }
    if not tensors or not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise JobError("the library returned no layer, or weights that are not finite")
    save_file(tensors, target / "weights.safetensors")
    about = {"library": backend.library, "version": backend.version, "layers": list(layers)}
    text = json.dumps(about | {"settings": settings}, indent=2, sort_keys=True)
    (target / "report.json").write_text(text + "\n", encoding="utf-8")


def own_stderr() -> TextIO:
    """This process's stderr for the worker alone; what the libraries print is dropped."""
    stream = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8")
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.close(sink)
    return stream


def main(load: Callable[[Job], Backend]) -> int:
    """Run a request, `WORKER request.json [--verbose]`; 0, or 1 after one `error:` line."""
    verbose = "--verbose" in sys.argv[2:]
    where, stderr = "", sys.stderr if verbose else own_stderr()
    try:
        job = read_job(Path(sys.argv[1]))
        backend = load(job)
        for source, _ in job.checkpoints:
            where = f"{source.name}: "
            backend.check(source, job)
        for number, (source, target) in enumerate(job.checkpoints, start=1):
            where, start = f"{source.name}: ", time.monotonic()
            layers, settings = backend.quantize(source, job)
            write_result(target, backend, layers, settings)
            count = f"checkpoint {number}/{len(job.checkpoints)} ({source.name})"
            line = f"{count}, {len(layers)} layers, {time.monotonic() - start:.1f} s"
            print(f"{backend.library} {backend.version}: {line}", file=stderr)
    except Exception as error:
        if verbose:
            raise
        kind = "" if isinstance(error, JobError) else f"{type(error).__name__}: "
        print("error:", where + kind + " ".join(str(error).split()), file=stderr)
        return 1
    return 0
