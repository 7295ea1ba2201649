"""The files of pinned, purely Python distributions, and the documents in them. They are checked
against the wheels' digests, so what is read depends on the distributions' versions alone."""

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from importlib.metadata import Distribution, PackagePath
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem

Selection = Callable[[Distribution], Iterable[PackagePath]]


def python_files(distribution: Distribution) -> list[PackagePath]:
    """Its source files."""
    return [file for file in distribution.files or [] if file.suffix == ".py"]


def installed_files(package: str, select: Selection = python_files) -> list[Path]:
    """The selected files of a distribution, each still as its wheel brought it; `Problem` for one
    that has compiled parts (its files may differ between machines), or was altered."""
    try:
        distribution = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        raise Problem(f"package {package!r} of the corpus is not installed; install it") from None
    if "-none-any" not in (distribution.read_text("WHEEL") or ""):
        raise Problem(f"package {package!r} of the corpus is not a pure-Python wheel; remove it")
    paths = []
    for file in select(distribution):
        if file.hash is None:
            continue
        path = Path(str(file.locate()))
        digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != file.hash.value:
            raise Problem(f"{path.name} of {package} was altered; reinstall {package}")
        paths.append(path)
    if not paths:
        raise Problem(f"package {package!r} of the corpus has no such text; remove it")
    return paths


def facts(documents: Sequence[str], packages: Iterable[str]) -> dict[str, Any]:
    """Facts of a corpus of documents in installed packages."""
    return {
        "documents": len(documents),
        "characters": sum(map(len, documents)),
        "packages": {name: metadata.version(name) for name in packages},
    }


def in_order(texts: Iterable[str]) -> list[str]:
    """Ordered by their sha256: in no order that a name or a package gives."""
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())
