"""Installed versions of the libraries that a job computes with."""

import importlib.metadata
import sys
from collections.abc import Iterable
from functools import cache

# Distributions whose name is not that of the module they install.
DISTRIBUTION = {
    "compressed_tensors": "compressed-tensors",
    "mpl_toolkits": "matplotlib",
    "yaml": "PyYAML",
}
# Distributions that compute for another one, which imports them.
BEHIND = {"llmcompressor": ("compressed-tensors",)}


def versions(libraries: Iterable[str], distributions: Iterable[str] = ()) -> dict[str, str]:
    """Version of every distribution that modules are from, of those behind them, and of others by
    their own name."""
    names = {DISTRIBUTION.get(name, name) for name in libraries}
    names -= set(sys.stdlib_module_names)
    names |= {other for name in names for other in BEHIND.get(name, ())}
    return {name: version(name) for name in sorted(names | set(distributions))}


@cache
def version(distribution: str) -> str:
    """The installed version, or "absent"."""
    try:
        # A build tag (+cpu, +cu130) names the same release, so results may move between machines.
        return importlib.metadata.version(distribution).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "absent"
