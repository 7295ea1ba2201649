"""The machine and the device that a process computes on."""

import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

# Of x86 and ARM, the widest first, as Linux calls them.
VECTORS = ("avx512f", "avx2", "avx", "sve", "asimd")


@dataclass(frozen=True)
class Machine:
    """Kind of machine, without its name; memory in bytes; the widest vector instructions, on which
    the order of sums depends, and so the last bits of results."""

    system: str
    architecture: str
    processor: str
    cores: int | None
    memory: int
    python: str
    vector: str | None = None


@dataclass(frozen=True)
class Device:
    """The accelerator that the job used, or the CPU; peak memory in bytes."""

    kind: str
    name: str | None = None
    count: int | None = None
    peak_memory: int | None = None


def this() -> Machine:
    """The machine that this process runs on."""
    flags = " ".join(_of_processor("flags")[:1] or _of_processor("Features")[:1]).split()
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        processor=(_of_processor("model name") or [platform.processor()])[0],
        cores=os.cpu_count(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=platform.python_version(),
        vector=next((name for name in VECTORS if name in flags), None),
    )


def _of_processor(key: str) -> list[str]:
    """What Linux says of every core under a key."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return []
    return re.findall(rf"^{key}\s*: *(.*?) *$", text, flags=re.M)


def device() -> Device:
    """The device that this process used."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return Device("cpu")
    return Device(
        "cuda",
        torch.cuda.get_device_name(),
        torch.cuda.device_count(),
        torch.cuda.max_memory_allocated(),
    )
