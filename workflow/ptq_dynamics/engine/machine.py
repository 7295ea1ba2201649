"""The machine, the device and the libraries that a process computes with, and the commit of the
code."""

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ptq_dynamics.engine.checkout import PACKAGE, ROOT, SOURCES

# Of x86 and ARM, the widest first, as Linux calls them.
VECTORS = ("avx512f", "avx2", "avx", "sve", "asimd")
CODE = (".py", ".smk", "Snakefile", ".yaml")
# What jobs read of a checkout.
READ = ("workflow", "config", "envs", "Snakefile", "pyproject.toml")
# Distributions whose name is not that of the module they install.
DISTRIBUTION = {"compressed_tensors": "compressed-tensors", "yaml": "PyYAML"}
# Distributions that compute for another one, which imports them.
BEHIND = {
    "llmcompressor": ("compressed-tensors",),
    "lm_eval": ("datasets", "jinja2", "tokenizers"),
}


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
    """The commit of the code's repository; whether files that the job reads differ from it, and
    which, the first few; and the commit's tree, which a rebase may keep. Old records lack both."""

    commit: str
    dirty: bool
    edited: tuple[str, ...] = ()
    tree: str | None = None

    def __str__(self) -> str:
        names = " in " * bool(self.edited) + ", ".join(self.edited)
        return f"{self.commit[:10]}{' with edits' * self.dirty}{names}"


def this() -> Machine:
    """The machine that this process runs on."""
    # What Linux says of the first core.
    known = dict[str, str]()
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
        known = dict(re.findall(r"^(.*?)\s*: *(.*?) *$", text, flags=re.M))
    flags = known.get("flags", known.get("Features", "")).split()
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        processor=known.get("model name", platform.processor()),
        cores=os.cpu_count(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=platform.python_version(),
        vector=next((name for name in VECTORS if name in flags), None),
    )


def device() -> Device:
    """The device that this process used."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return Device("cpu")
    name, count = torch.cuda.get_device_name(), torch.cuda.device_count()
    return Device("cuda", name, count, torch.cuda.max_memory_allocated())


@cache
def commit(*more: str, root: Path = ROOT) -> Git | None:
    """The commit of the code when first asked; None where git refuses, or no repository holds it,
    as in a folder that another one ignores. Edited are files that jobs read, or that lie in `more`:
    any that it holds, and code or configuration that it does not hold."""
    listing = ("status", "--porcelain", "-z", "-uall", "--no-renames", "--", *READ, *more)
    try:
        _git(root, "ls-files", "--error-unmatch", f"{SOURCES.name}/{PACKAGE}/__init__.py")
        found, tree = _git(root, "rev-parse", "HEAD", "HEAD^{tree}").split()
        changes = [each for each in _git(root, *listing).split("\0") if each]
    except (OSError, subprocess.CalledProcessError):
        return None
    edited = [each[3:] for each in changes if each[:2] != "??" or each.endswith(CODE)]
    return Git(found, bool(edited), tuple(edited[:5]), tree)


def history(root: Path = ROOT) -> set[str]:
    """The commits that HEAD descends from, and their trees; none where git lacks some of them."""
    with suppress(OSError, subprocess.CalledProcessError):
        if _git(root, "rev-parse", "--is-shallow-repository").strip() == "false":
            return {*_git(root, "log", "--format=%H %T").split()}
    return set()


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    # Whoever calls, as a hook, may have named another repository.
    known = os.environ.items()
    own = {n: v for n, v in known if not n.startswith("GIT_") or n.startswith("GIT_CONFIG")}
    how: Any = {"check": True, "capture_output": True, "text": True, "errors": "replace"}
    return str(subprocess.run(command, env={**own, "LC_ALL": "C"}, **how).stdout)


def versions(modules: Iterable[str], distributions: Iterable[str] = ()) -> dict[str, str]:
    """Version of the distributions that modules are from, of those behind them, and of others by
    their own name; "absent" where one is not installed."""
    names = {DISTRIBUTION.get(name, name) for name in {*modules} - sys.stdlib_module_names}
    names |= {other for name in names for other in BEHIND.get(name, ())}
    # Without a build tag: +cpu and +cu130 are of one release, so results move between machines.
    return {
        name: (installed(name) or "absent").split("+")[0]
        for name in sorted({*names, *distributions})
    }


@cache
def installed(distribution: str) -> str | None:
    """The installed version with its build tag, when first asked; None where it is absent."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None
