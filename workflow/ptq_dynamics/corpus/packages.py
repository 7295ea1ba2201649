"""Documents in installed packages. Files are verified against the digests of their wheels, so the
text depends on the versions of packages alone."""

import ast
import base64
import hashlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.metadata import Distribution, PackagePath
from itertools import accumulate
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.manifest import Facts

Select = Callable[[Distribution], list[PackagePath]]
# A summary has at least so many words, and is no directive of reStructuredText ("..").
WORD, FEWEST_WORDS = re.compile(r"[A-Za-z]{2,}"), 3


@dataclass(frozen=True)
class Documented:
    """A docstring; for functions also `name(argument, ...)`, and the first sentence."""

    document: str
    signature: str | None = None
    summary: str | None = None


def python_files(distribution: Distribution) -> list[PackagePath]:
    """Return the source files of a distribution."""
    return [file for file in distribution.files or [] if file.suffix == ".py"]


def installed_files(package: str, select: Select = python_files) -> list[Path]:
    """Return selected files of a package; raise `Problem` if it is altered or not pure Python."""
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


def package_facts(documents: Sequence[str], packages: Iterable[str]) -> Facts:
    """Return the facts of a corpus of documents in installed packages."""
    return {
        "documents": len(documents),
        "characters": sum(map(len, documents)),
        "packages": {name: metadata.version(name) for name in packages},
    }


def by_digest(texts: Iterable[str]) -> list[str]:
    """Return texts ordered by sha256."""
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())


def documented(names: Iterable[str], shortest: int, code: bool = False) -> dict[str, Documented]:
    """Return documents with at least `shortest` characters by text, with the first signature."""
    files = [file for name in names for file in installed_files(name)]
    items = [item for file in files for item in docstrings(file, code)]
    known: dict[str, Documented] = {}
    for item in sorted(items, key=lambda item: (item.signature is None, item.signature or "")):
        if len(item.document) >= shortest:
            known.setdefault(item.document, item)
    return known


def docstrings(file: Path, code: bool = False) -> list[Documented]:
    """Return the docstrings in a source file, and with `code` also the file's text."""
    source, documents = file.read_text(encoding="utf-8"), []
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in _nodes(file, source):
        text = dedent(ast.get_docstring(node, clean=False) or "") if isinstance(node, kinds) else ""
        if text and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documents.append(Documented(text, call_signature(node), summary(text)))
        elif text:
            documents.append(Documented(text))
    return [*documents, *([Documented(source)] if code else [])]


def call_signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a function's name and the names of its arguments."""
    arguments = node.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [argument.arg for argument in arguments.kwonlyargs]
    names += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return f"{node.name}({', '.join(names)})"


def summary(document: str) -> str | None:
    """Return the first sentence of a docstring if it is on one line."""
    first = document.partition("\n\n")[0].strip()
    sentence, stop, _ = f"{first} ".partition(". ")
    says = len(WORD.findall(sentence)) >= FEWEST_WORDS and not sentence.startswith("..")
    return f"{sentence}." if stop and says and "\n" not in sentence else None


def taken_out(file: Path) -> str:
    """Return the text of a file without docstrings and other strings that are statements."""
    text = file.read_text(encoding="utf-8")
    source = bytearray(text.encode())
    # The syntax tree counts lines from 1, and bytes in a line from 0.
    starts = [0, *accumulate(len(line) + 1 for line in source.split(b"\n"))]
    alone = (node for node in _nodes(file, text) if isinstance(node, ast.Expr))
    # Types of ast leave open whether an end is known.
    strings: list[Any] = [n for n in alone if isinstance(getattr(n.value, "value", None), str)]
    # From the end on, so that earlier positions stay valid.
    for node in sorted(strings, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        first, last = starts[node.lineno - 1], starts[node.end_lineno]
        begin, end = first + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        if not source[first:begin].strip() and not source[end:last].strip():
            begin, end = first, last
        del source[begin:end]
    return source.decode()


def dedent(docstring: str) -> str:
    """Remove indentation as inspect.cleandoc, which differs between Python versions."""
    lines = docstring.expandtabs().split("\n")
    margins = [len(line) - len(line.lstrip(" ")) for line in lines[1:] if line.strip(" ")]
    margin = min(margins, default=0)
    return "\n".join([lines[0].lstrip(" "), *(line[margin:] for line in lines[1:])]).strip("\n ")


def _nodes(file: Path, text: str) -> Iterator[ast.AST]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes
        return ast.walk(ast.parse(text, filename=str(file)))
