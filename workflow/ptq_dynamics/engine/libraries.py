"""Installed versions of the libraries that a job computes with."""

import importlib.metadata
import re
import sys
from collections.abc import Iterable
from functools import cache

# Distributions whose name is not that of the module they install.
DISTRIBUTION = {
    "compressed_tensors": "compressed-tensors",
    "mpl_toolkits": "matplotlib",
    "PIL": "pillow",
    "yaml": "PyYAML",
}
# Distributions that compute for another one, which imports them.
BEHIND = {
    "llmcompressor": ("compressed-tensors",),
    "lm_eval": ("datasets", "jinja2", "tokenizers"),
}


def versions(modules: Iterable[str], distributions: Iterable[str] = ()) -> dict[str, str]:
    """Version of the distributions that modules are from, of those behind them, and of others by
    their own name; "absent" where one is not installed."""
    names = {DISTRIBUTION.get(name, name) for name in {*modules} - sys.stdlib_module_names}
    names |= {other for name in names for other in BEHIND.get(name, ())}
    return {name: version(name) for name in sorted(names | {*distributions})}


def version(distribution: str) -> str:
    """The installed version, without a build tag: +cpu and +cu130 name the same release, so
    results may move between machines."""
    return (installed(distribution) or "absent").split("+")[0]


@cache
def installed(distribution: str) -> str | None:
    """The installed version with its build tag, when first asked; None where it is absent."""
    try:
        found = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    # The library parses all metadata, long descriptions too, for milliseconds a distribution.
    line = re.search(r"^Version: *(.+?) *$", found.read_text("METADATA") or "", flags=re.M)
    return line[1] if line else found.version
