"""The scripts and styles of the page, which lie beside this module as files of their own."""

from collections.abc import Iterator
from pathlib import Path

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem

FOLDER = Path(__file__).with_name("assets")
STYLE = "style.css"
# In the order in which they stand in the page.
SCRIPTS = (
    "page.js",
    "tables.js",
    "zoom.js",
    "plot.js",
    "chart.js",
    "figures.js",
    "tree.js",
    "start.js",
)


def digests() -> Iterator[tuple[str, str]]:
    """Name and hex sha256 of every file; no fingerprint of code has them."""
    for name in (STYLE, *SCRIPTS):
        try:
            yield name, sha256(FOLDER / name)
        except OSError as error:
            raise Problem(
                f"{FOLDER / name} cannot be read ({error.strerror}); install the package again, or "
                "restore the file"
            ) from None


def read(planned: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Text of every file by its name; `Problem` where one is not as the job was planned with."""
    found = dict(digests())
    for name, digest in planned:
        if found.get(name) != digest:
            raise Problem(
                f"{FOLDER / name} is not the file that this job was planned with; run snakemake "
                "again"
            )
    return {name: (FOLDER / name).read_text(encoding="utf-8") for name in found}
