"""Fingerprints of the code and of the libraries that a stage's result depends on.

The code of a stage is its module and the local modules that it imports, transitively, but for the
engine, which shapes no result. Comments, docstrings, layout and the Python version do not count.
Its libraries are the distributions that those modules import, with their installed versions.
"""

import ast
import hashlib
import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ptq_dynamics.jobs.checkout import PACKAGE, SOURCES
from ptq_dynamics.problem import Problem

# Distributions whose name is not that of the module they install.
DISTRIBUTION = {"yaml": "PyYAML", "mpl_toolkits": "matplotlib"}

ENGINE = f"{PACKAGE}.jobs"

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code(module: str, root: Path = SOURCES) -> dict[str, str]:
    """Digest of every local module that `module` needs, by module name."""
    return {name: _digest(path) for name, path in sorted(_closure(module, root).items())}


def environment(module: str, root: Path = SOURCES) -> dict[str, str]:
    """Installed version of every distribution that `module` and its local imports need."""
    roots: set[str] = set()
    for path in _closure(module, root).values():
        roots |= {name.split(".")[0] for name in _imports(path)}
    names = {
        DISTRIBUTION.get(name, name)
        for name in roots
        if name != PACKAGE and name not in sys.stdlib_module_names
    }
    return {name: _version(name) for name in sorted(names)}


def check(code: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Raise `Problem` where the code here or a library is not the one of a specification."""
    for module, digest in code.items():
        path = _locate(module, SOURCES)
        if path is None or _digest(path) != digest:
            raise Problem(
                f"{module} in {SOURCES} is not the code that this job was planned with; run "
                "snakemake again, or set PYTHONPATH to the folder workflow of the job's checkout"
            )
    for name, version in environment.items():
        if _version(name) != version:
            raise Problem(
                f"{name} is {_version(name)} here, but the job was planned with {version}; plan it "
                "again with snakemake in this environment, or run it in the other"
            )


def remember(root: Path = SOURCES) -> None:
    """Parse all modules of the package now, for the processes that are forked off this one."""
    for path in (root / PACKAGE).rglob("*.py"):
        _digest(path)


@cache
def _version(distribution: str) -> str:
    try:
        # A build tag (+cpu, +cu130) names the same release, so results may move between machines.
        return importlib.metadata.version(distribution).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _closure(module: str, root: Path) -> dict[str, Path]:
    if _locate(module, root) is None:
        raise Problem(f"there is no module {module}; write workflow/{module.replace('.', '/')}.py")
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _locate(name, root)
        if path is None or name in found or (name.startswith(ENGINE) and name != module):
            continue
        found[name] = path
        if "." in name:
            waiting.append(name.rpartition(".")[0])
        waiting += [name for name in _imports(path) if name.split(".")[0] == PACKAGE]
    return found


@cache
def _locate(module: str, root: Path) -> Path | None:
    base = root.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(path: Path) -> Iterator[str]:
    yield from _parsed(path, path.stat().st_mtime_ns)[0]


def _digest(path: Path) -> str:
    return _parsed(path, path.stat().st_mtime_ns)[1]


@cache
def _parsed(path: Path, _modified: int) -> tuple[tuple[str, ...], str]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    parts: list[str] = []
    imports: list[str] = []
    _canonical(tree, parts, imports)
    return tuple(imports), hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def _canonical(node: object, parts: list[str], imports: list[str]) -> None:
    # Not ast.dump: its output differs between Python versions (new, empty fields). Appending to
    # lists is several times as fast as generators, and every start of Snakemake waits for it.
    if isinstance(node, ast.AST):
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports.append(node.module)
            imports += [f"{node.module}.{alias.name}" for alias in node.names]
        parts.append(f"{type(node).__name__}(")
        for name in node._fields:
            value: Any = getattr(node, name, None)
            if name == "body" and isinstance(node, Definition) and _is_docstring(value):
                value = value[1:]
            if value is None or value == []:
                continue
            parts.append(f"{name}=")
            _canonical(value, parts, imports)
        parts.append(")")
    elif isinstance(node, list):
        parts.append("[")
        for item in node:
            _canonical(item, parts, imports)
            parts.append(",")
        parts.append("]")
    else:
        parts.append(repr(node))


def _is_docstring(body: list[ast.stmt]) -> bool:
    first = body[0] if body else None
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
