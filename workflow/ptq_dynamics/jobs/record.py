"""Records: who, what, when and where of one result, written beside its manifest."""

import datetime
import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from ptq_dynamics.jobs.manifest import Manifest

VERSION = 1


def describe(
    job: Mapping[str, Any],
    inputs: Mapping[str, list[Manifest]],
    output: Manifest,
    started: datetime.datetime,
    seconds: float,
) -> dict[str, Any]:
    """Everything about how a result came to be; times in UTC and seconds, memory in bytes."""
    return {
        "version": VERSION,
        "job": job,
        "inputs": {str(m.path): m.digest() for group in inputs.values() for m in group},
        "output": {str(output.path): output.digest()},
        "packages": {name: _installed(name) for name in job["environment"]},
        "git": git(),
        "machine": machine(),
        "device": device(),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "cpu_seconds": round(_cpu_seconds(), 3),
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "threads": int(os.environ.get("OMP_NUM_THREADS", 0)) or os.cpu_count(),
        "tokens": output.facts.get("tokens_processed"),
    }


def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def git() -> dict[str, Any] | None:
    """Commit of the working tree and whether tracked files differ from it; None outside git."""
    try:
        commit = _git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def machine() -> dict[str, Any]:
    """Kind of machine, without its name."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [
                line.split(":", 1)[1].strip() for line in file if line.startswith("model name")
            ]
    except OSError:
        names = []
    return names[0] if names else platform.processor()


def device() -> dict[str, Any]:
    """The accelerator that the job used, or the CPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {"kind": "cpu"}
    return {
        "kind": "cuda",
        "name": torch.cuda.get_device_name(),
        "count": torch.cuda.device_count(),
        "peak_memory": torch.cuda.max_memory_allocated(),
    }
