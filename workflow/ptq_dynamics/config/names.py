"""Names that the files under config/ give to things.

They become folders, values of Snakemake's wildcards and targets on the command line, so they follow
one pattern and keep clear of what these mean already.
"""

import difflib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, WithJsonSchema

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.measure.names import FULL_PRECISION

PATTERN = r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*"
LONGEST = 100
# Folders of seeds stand beside those of names.
SEEDS = r"seed-[0-9]+"
WORKFLOW = Path(__file__).parents[2]

T = TypeVar("T")


def _pattern(name: str) -> str:
    if not re.fullmatch(PATTERN, name) or len(name) > LONGEST or re.fullmatch(SEEDS, name):
        raise ValueError(
            f"a name has letters, digits, '.', '-' and '_', at most {LONGEST}, begins with a "
            "letter or digit, has no '..', and is not that of a folder of a seed"
        )
    return name


@cache
def rule_names() -> frozenset[str]:
    """Names of the rules of Snakemake, and the words that choose all figures."""
    paths = [path for pattern in ("Snakefile", "rules/*.smk") for path in WORKFLOW.glob(pattern)]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return frozenset({*re.findall(r"^rule (\w+):", text, flags=re.M), "figures", "all"})


def _no_rule(name: str) -> str:
    if name in rule_names():
        raise ValueError(f"{name!r} is a rule of Snakemake or a word for all figures; rename it")
    return name


def _quantized(name: str) -> str:
    if name == FULL_PRECISION:
        raise ValueError(f"{name!r} is full precision; choose another name")
    return name


def _distinct(named: dict[str, Any]) -> dict[str, Any]:
    # Some file systems take two such names for one.
    seen: dict[str, str] = {}
    for name in named:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise ValueError(f"{other!r} and {name!r} differ in capitals alone; rename one")
    return named


Name = Annotated[
    str,
    AfterValidator(_pattern),
    WithJsonSchema({"type": "string", "pattern": f"^{PATTERN}$", "maxLength": LONGEST}),
]
QuantizerName = Annotated[Name, AfterValidator(_quantized)]
FigureName = Annotated[Name, AfterValidator(_no_rule)]
DISTINCT = AfterValidator(_distinct)
Named = Annotated[dict[Name, T], DISTINCT]

# Names of a kind that an error lists.
MOST_KNOWN = 20


def require(place: str, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `Problem` when a name is not one of those known."""
    for name in names:
        if name not in known:
            near = [*known]
            if len(near) > MOST_KNOWN:
                near = difflib.get_close_matches(name, near, 3, 0)
            said = "known" if len(near) == len([*known]) else "the nearest"
            raise Problem(f"{place} names no known {kind}: {name!r} ({said}: {', '.join(near)})")
