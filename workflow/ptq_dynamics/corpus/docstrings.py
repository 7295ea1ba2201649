"""The docstrings of source files: read, or taken out of them."""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from ptq_dynamics.corpus import packages

# A sentence says something with so many words; a directive of reStructuredText begins with dots.
WORD, FEWEST_WORDS = re.compile(r"[A-Za-z]{2,}"), 3


@dataclass(frozen=True)
class Documented:
    """A docstring without indentation; of a function, also its `signature`, `name(argument, ...)`,
    and the `summary`, its first sentence, if it has one."""

    document: str
    signature: str | None = None
    summary: str | None = None


def read(file: Path, whole: bool = False) -> list[Documented]:
    """What has a docstring in a source file; `whole`: its text, too."""
    source, found = file.read_text(encoding="utf-8"), []
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in _nodes(file, source):
        text = dedent(ast.get_docstring(node, clean=False) or "") if isinstance(node, kinds) else ""
        if text and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(Documented(text, signature(node), summary(text)))
        elif text:
            found.append(Documented(text))
    return [*found, *([Documented(source)] if whole else [])]


def documented(names: Iterable[str], shortest: int, whole: bool = False) -> dict[str, Documented]:
    """What some packages document in at least `shortest` characters, by the docstring; where
    several have one, the function with the first signature."""
    files = [file for each in names for file in packages.installed_files(each)]
    found = [each for file in files for each in read(file, whole)]
    known: dict[str, Documented] = {}
    for each in sorted(found, key=lambda each: (each.signature is None, each.signature or "")):
        if len(each.document) >= shortest:
            known.setdefault(each.document, each)
    return known


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Its name and its arguments' names: defaults and types are written in many ways."""
    arguments = node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [each.arg for each in arguments.kwonlyargs]
    names += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return f"{node.name}({', '.join(names)})"


def summary(document: str) -> str | None:
    """The first sentence of a docstring, where its first paragraph is one line that has one."""
    first = document.partition("\n\n")[0].strip()
    sentence, stop, _ = f"{first} ".partition(". ")
    says = len(WORD.findall(sentence)) >= FEWEST_WORDS and not sentence.startswith("..")
    return f"{sentence}." if stop and says and "\n" not in sentence else None


def taken_out(file: Path) -> str:
    """The text of a file without its docstrings, and without other strings that stand alone, such
    as those that document attributes: lines that hold nothing else go with them."""
    text = file.read_text(encoding="utf-8")
    source = bytearray(text.encode())
    # Positions in a syntax tree: lines from 1, in a line bytes from 0.
    starts = [0, *accumulate(len(line) + 1 for line in source.split(b"\n"))]
    alone = (node for node in _nodes(file, text) if isinstance(node, ast.Expr))
    strings: list[Any] = [n for n in alone if isinstance(getattr(n.value, "value", None), str)]
    # From the end on, so that earlier positions stay.
    for node in sorted(strings, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        first, last = starts[node.lineno - 1], starts[node.end_lineno]
        begin, end = first + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        if not source[first:begin].strip() and not source[end:last].strip():
            begin, end = first, last
        del source[begin:end]
    return source.decode()


def _nodes(file: Path, text: str) -> Iterator[ast.AST]:
    """The nodes of a file's syntax tree."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        return ast.walk(ast.parse(text, filename=str(file)))


def dedent(docstring: str) -> str:
    """A docstring without the indentation of the code around it, as inspect.cleandoc has it, which
    differs between Python versions."""
    lines = docstring.expandtabs().split("\n")
    margins = [len(line) - len(line.lstrip(" ")) for line in lines[1:] if line.strip(" ")]
    margin = min(margins, default=0)
    return "\n".join([lines[0].lstrip(" "), *(line[margin:] for line in lines[1:])]).strip("\n ")
