"""Settings of the page, as they cross the job border."""

from dataclasses import dataclass

PAGE = "index.html"
# Snakemake's own, beside the page; of no job.
OTHER = "snakemake-report.html"


@dataclass(frozen=True)
class Shown:
    """A figure with what is said of it, the group it is listed in, the labels of its curves in the
    order of the legend, and those of the runs whose training curves belong to it."""

    name: str
    title: str
    caption: str
    group: str
    curves: tuple[str, ...]
    runs: tuple[str, ...]


@dataclass(frozen=True)
class PageSettings:
    """The scale's name and description; figures in the order of the page; names and titles of
    tables; and the digests, by name, of the scripts and styles that the page holds."""

    scale: str
    description: str
    figures: tuple[Shown, ...]
    tables: tuple[tuple[str, str], ...]
    assets: tuple[tuple[str, str], ...]
