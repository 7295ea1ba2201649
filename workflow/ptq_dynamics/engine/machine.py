"""The machine, the device, the libraries and the commit that a process computes with."""

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.checkout import PACKAGE, ROOT, SOURCES

VECTORS = ("avx512f", "avx2", "avx", "sve", "asimd")  # flags of processors, the widest first
# Environment variables by which libraries choose kernels, and so the last bits.
KERNELS = re.compile(
    r"(ATEN|BLIS|CUBLAS|CUBLASLT|CUDNN|DNNL|MKL|NPY|OMP|ONEDNN|OPENBLAS|TORCH_BLAS|VECLIB)"
    r"_(?!VERBOSE|LOG).*|.*TF32.*|GLIBC_TUNABLES|KMP_DETERMINISTIC_REDUCTION|NCCL_(ALGO|PROTO)"
    r"|PYTORCH_TUNABLEOP_ENABLED"
)
THREADS = "OMP_NUM_THREADS"
CODE = (".py", ".smk", "Snakefile", ".yaml")
READ = ("workflow", "config", "envs", "Snakefile", "pyproject.toml")  # parts that jobs read
DISTRIBUTION = {"compressed_tensors": "compressed-tensors", "yaml": "PyYAML"}  # by module
# Distributions that compute for the one that imports them.
BEHIND = {"llmcompressor": ["compressed-tensors"], "lm_eval": ["datasets", "jinja2", "tokenizers"]}


@dataclass(frozen=True)
class Machine:
    """Kind of machine, without its name; memory in bytes. The last bits of results depend on vector
    instructions, which set the order of sums: the widest, the `capability` that torch uses, and the
    `precision` of its float32 products. None is unknown, or torch was not imported."""

    system: str
    architecture: str
    processor: str
    cores: int | None
    memory: int
    python: str
    vector: str | None = None
    capability: str | None = None
    precision: str | None = None
    variables: Mapping[str, str] | None = None  # as `variables` returns them


@dataclass(frozen=True)
class Device:
    """The device that a job used; peak memory in bytes; what may compute float32 in TF32."""

    kind: str
    name: str | None = None
    count: int | None = None
    peak_memory: int | None = None
    tf32: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Git:
    """A commit, its tree (which a rebase may keep), whether files that jobs read differ from the
    commit, and the first of these files. Old records lack tree and files."""

    commit: str
    dirty: bool
    edited: tuple[str, ...] = ()
    tree: str | None = None

    def __str__(self) -> str:
        names = " in " * bool(self.edited) + ", ".join(self.edited)
        return f"{self.commit[:10]}{' with edits' * self.dirty}{names}"


def this() -> Machine:
    """Describe the machine that this process runs on."""
    known = dict[str, str]()
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
        known = dict(re.findall(r"^(.*?)\s*: *(.*?) *$", first, flags=re.M))
    torch = sys.modules.get("torch")
    flags = known.get("flags", known.get("Features", "")).split()
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        processor=known.get("model name", platform.processor()),
        cores=os.cpu_count(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=platform.python_version(),
        vector=next((name for name in VECTORS if name in flags), None),
        capability=torch.backends.cpu.get_cpu_capability() if torch else None,
        precision=torch.get_float32_matmul_precision() if torch else None,
        variables=variables(),
    )


def variables() -> dict[str, str]:
    """Return the environment variables that choose kernels, without equal numbers of threads."""
    threads = os.environ.get(THREADS)
    known = ((name, value) for name, value in os.environ.items() if KERNELS.fullmatch(name))
    return {n: v for n, v in sorted(known) if v != threads or not n.endswith("_THREADS")}


def used_device() -> Device:
    """Describe the device that this process used."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return Device("cpu")
    name, count = torch.cuda.get_device_name(), torch.cuda.device_count()
    kinds = {"products": torch.backends.cuda.matmul, "cudnn": torch.backends.cudnn}
    tf32 = tuple(kind for kind, backend in kinds.items() if backend.allow_tf32)
    return Device("cuda", name, count, torch.cuda.max_memory_allocated(), tf32)


@cache
def commit(*more: str, root: Path = ROOT) -> Git | None:
    """Return the commit of the code at the first call, or None if there is none."""
    with suppress(Problem):
        return read_commit(*more, root=root)
    return None


def read_commit(*more: str, root: Path = ROOT) -> Git:
    """Return the commit of the code; `Problem` if git is missing or the code is in no repository.
    Edits count in `READ` and `more`; untracked files, if they are code or configuration."""
    listing = ("status", "--porcelain", "-z", "-uall", "--no-renames", "--", *READ, *more)
    _require_tracked(root)
    head, tree = _git(root, "rev-parse", "HEAD", "HEAD^{tree}").split()
    changes = [change for change in _git(root, *listing).split("\0") if change]
    edited = [change[3:] for change in changes if change[:2] != "??" or change.endswith(CODE)]
    return Git(head, bool(edited), tuple(edited[:5]), tree)


def history(root: Path = ROOT) -> tuple[set[str], str]:
    """Return the commits up to HEAD with their trees, and why commits may be missing, if so."""
    try:
        _require_tracked(root)
        known = {*_git(root, "log", "--format=%H %T").split()}
        is_whole = _git(root, "rev-parse", "--is-shallow-repository").strip() == "false"
    except Problem as problem:
        return set(), str(problem)
    return known, "" if is_whole else "the history is shallow; run git fetch --unshallow"


def _require_tracked(root: Path) -> None:
    """Raise `Problem` if the code is in no repository, or in one that does not have it."""
    _git(root, "ls-files", "--error-unmatch", f"{SOURCES.name}/{PACKAGE}/__init__.py")


def _git(root: Path, *arguments: str) -> str:
    # Whoever runs this code trusts its folder, so that may belong to another user.
    command = ["git", "--no-optional-locks", "-c", f"safe.directory={root}", "-C", str(root)]
    # The variables of a git hook name another repository.
    known = os.environ.items()
    own = {n: v for n, v in known if not n.startswith("GIT_") or n.startswith("GIT_CONFIG")}
    own["LC_ALL"] = "C"
    command += arguments
    try:
        done = subprocess.run(command, capture_output=True, env=own, text=True, errors="replace")
    except OSError as error:
        raise Problem(f"git cannot be run: {error.strerror}") from None
    if done.returncode:
        raise Problem(f"git says: {' '.join(done.stderr.split())}")
    return done.stdout


def versions(modules: Iterable[str], distributions: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of the distributions of modules, of those behind them, and of further
    `distributions`; "absent" if one is not installed."""
    names = {DISTRIBUTION.get(name, name) for name in {*modules} - sys.stdlib_module_names}
    names |= {other for name in names for other in BEHIND.get(name, ())}
    names |= {*distributions}
    # Without a build tag such as +cpu, results are up to date on other machines, too.
    return {name: (installed(name) or "absent").split("+")[0] for name in sorted(names)}


@cache
def installed(distribution: str) -> str | None:
    """Return the installed version with its build tag; None if there is none."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None
