"""The docstrings of a source file: read, or taken out of it."""

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem


def read(file: Path, whole: bool = False) -> list[str]:
    """The docstrings of a file, without their indentation; `whole`: its text, too."""
    found = [text for _, text in documented(file)]
    return [*found, file.read_text(encoding="utf-8")] if whole else found


def documented(file: Path) -> Iterator[tuple[ast.AST, str]]:
    """What has a docstring in a file, with it, without its indentation."""
    for node in _nodes(file, file.read_text(encoding="utf-8")):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            yield from [(node, dedent(text))] if text else []


def taken_out(file: Path) -> str:
    """The text of a file without its docstrings, and without other strings that stand alone, such
    as those that document attributes: lines that hold nothing else go with them."""
    text = file.read_text(encoding="utf-8")
    source = text.encode()
    # Positions in a syntax tree: lines from 1, in a line bytes from 0.
    starts = [0]
    for line in source.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    kept, done = [], 0
    strings: list[Any] = [node for node in _nodes(file, text) if _is_string(node)]
    for node in sorted(strings, key=lambda node: (node.lineno, node.col_offset)):
        first, last = starts[node.lineno - 1], starts[node.end_lineno]
        begin = first + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        if not source[first:begin].strip() and not source[end:last].strip():
            begin, end = first, last
        kept.append(source[done:begin])
        done = end
    return b"".join([*kept, source[done:]]).decode()


def _is_string(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _nodes(file: Path, text: str) -> Iterator[ast.AST]:
    """The nodes of a file's syntax tree; `Problem` for a syntax error, since a file that one Python
    version reads and another does not would change the corpus."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        try:
            return ast.walk(ast.parse(text, filename=file.name))
        except SyntaxError as error:
            raise Problem(
                f"{file.parent.name}/{file.name} is no source that this Python reads ({error.msg});"
                " remove its package from the scale's file"
            ) from None


def dedent(docstring: str) -> str:
    """A docstring without the indentation of the code around it, as inspect.cleandoc has it, which
    differs between Python versions."""
    lines = docstring.expandtabs().split("\n")
    margins = [len(line) - len(line.lstrip(" ")) for line in lines[1:] if line.strip(" ")]
    margin = min(margins, default=0)
    return "\n".join([lines[0].lstrip(" "), *(line[margin:] for line in lines[1:])]).strip("\n ")
