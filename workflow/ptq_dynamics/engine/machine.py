"""The machine and the device that a process computes on, and the commit of the code."""

import contextlib
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ptq_dynamics.engine.checkout import PACKAGE, ROOT, SOURCES

# Of x86 and ARM, the widest first, as Linux calls them.
VECTORS = ("avx512f", "avx2", "avx", "sve", "asimd")
CODE = (".py", ".smk", "Snakefile", ".yaml")


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


@dataclass(frozen=True)
class Git:
    """The commit of the code's repository, and whether the code differs from it."""

    commit: str
    dirty: bool


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
    name, count = torch.cuda.get_device_name(), torch.cuda.device_count()
    return Device("cuda", name, count, torch.cuda.max_memory_allocated())


def commit(root: Path = ROOT) -> Git | None:
    """The commit of the code; None where no repository holds it. Dirty is a change of any file it
    holds, and code or configuration that it does not hold."""
    if not holds_code(root):
        return None
    try:
        lines = _git(root, "status", "--porcelain=v2", "--branch", "-z", "-uall", "--no-renames")
    except (OSError, subprocess.CalledProcessError):
        return None
    found = next(line.split()[-1] for line in lines.split("\0") if line.startswith("# branch.oid "))
    changes = [line for line in lines.split("\0") if line and not line.startswith("#")]
    dirty = any(line[0] != "?" or line.endswith(CODE) for line in changes)
    return None if found == "(initial)" else Git(found, dirty)


def refresh() -> None:
    """Let git see that files are as they were: of a fresh clone, it would read them all again for
    every job."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        _git(ROOT, "update-index", "-q", "--refresh")


@cache
def holds_code(root: Path = ROOT) -> bool:
    """Whether a repository holds the code, which may lie in a folder that another one ignores."""
    try:
        _git(root, "ls-files", "--error-unmatch", f"{SOURCES.name}/{PACKAGE}/__init__.py")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
