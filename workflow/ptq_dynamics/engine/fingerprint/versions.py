"""Installed versions of the libraries that a job computes with."""

import hashlib
import importlib.metadata
import re
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
BEHIND = {
    "llmcompressor": ("compressed-tensors",),
    # It reads documents with the first and fills prompts with the second, which the third cuts.
    "lm_eval": ("datasets", "jinja2", "tokenizers"),
}


# Of what pip adds to a wheel's list of files: scripts lie outside, and these notes beside it.
ADDED = re.compile(
    r"(\.\./|/|.*\.pyc,|[^/]+\.dist-info/(INSTALLER|REQUESTED|RECORD|direct_url\.json),)"
)


def versions(libraries: Iterable[str], distributions: Iterable[str] = ()) -> dict[str, str]:
    """Version of every distribution that modules are from, of those behind them, and of others by
    their own name."""
    names = {DISTRIBUTION.get(name, name) for name in libraries}
    names -= set(sys.stdlib_module_names)
    names |= {other for name in names for other in BEHIND.get(name, ())}
    return {name: version(name) for name in sorted(names | set(distributions))}


def version(distribution: str) -> str:
    """The installed version, or "absent"."""
    return _release(installed(distribution))


@cache
def installed(distribution: str) -> str | None:
    """The installed version with its build tag, when first asked; None where it is absent."""
    return _found(distribution)


@cache
def wheel(distribution: str) -> str | None:
    """Hex sha256 of the list of files, with their digests, of the wheel that is installed, when
    first asked; it names the very build, which a version does not. None where there is no list."""
    try:
        listed = importlib.metadata.distribution(distribution).read_text("RECORD") or ""
    except importlib.metadata.PackageNotFoundError:
        return None
    lines = sorted(line for line in listed.splitlines() if line and not ADDED.match(line))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else None


def version_now(distribution: str) -> str:
    """As `version`, but as it is now, whatever this process has asked before."""
    return _release(_found(distribution))


def _release(found: str | None) -> str:
    # A build tag (+cpu, +cu130) names the same release, so results may move between machines.
    return (found or "absent").split("+")[0]


def _found(distribution: str) -> str | None:
    try:
        found = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    # The library parses all metadata, long descriptions too, for milliseconds a distribution.
    line = re.search(r"^Version: *(.+?) *$", found.read_text("METADATA") or "", flags=re.M)
    return line[1] if line else found.version
