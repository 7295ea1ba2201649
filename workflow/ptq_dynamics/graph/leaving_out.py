"""Trajectories that a scale cannot have, as those that are not in the paper's regime there: neither
they nor what is made of them is planned, and figures go without them."""

from collections.abc import Iterable, Mapping

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config, Figure

Names = tuple[str, ...]


def leave_out(
    config: Config, without: Iterable[str], place: str
) -> tuple[Config, dict[str, Names]]:
    """The configuration without some trajectories, and those made from them; and which each figure,
    by its name, goes without. A figure that has none left is left out too.

    Raises `Problem`, with the `place` that names them, when nothing is left of what is asked for.
    """
    names = _with_offspring(config, without)
    if not names:
        return config, dict.fromkeys(config.figures, ())
    kept = {}
    for section in ("runs", "averages"):
        every = getattr(config.runs, section)
        kept[section] = {name: each for name, each in every.items() if name not in names}
    runs = config.runs.model_copy(update=kept)
    figures, gone = dict[str, Figure](), dict[str, Names]()
    for name, figure in config.figures.items():
        gone[name] = tuple(each for each in figure.trajectories if each in names)
        left = {
            label: tuple(each for each in members if each not in names)
            for label, members in figure.curves.items()
        }
        if curves := {label: members for label, members in left.items() if members}:
            figures[name] = figure.model_copy(update={"curves": curves})
    _check_what_is_left(config, {*runs.trajectories}, figures, place)
    return config.model_copy(update={"runs": runs, "figures": figures}), gone


def _check_what_is_left(
    config: Config, names: set[str], figures: Mapping[str, Figure], place: str
) -> None:
    chosen = config.choice.figures
    known = [name for name in config.figures if chosen == "all" or name in chosen]
    for name in known:
        if name not in figures and (chosen != "all" or not figures):
            raise Problem(f"{place} leaves nothing of figure {name}; choose others")
    if config.backends.trajectory not in names:
        raise Problem(
            f"{place} leaves out {config.backends.trajectory}, or what it is made of, which "
            "config/backends.yaml compares backends on; name another trajectory there"
        )


def _with_offspring(config: Config, without: Iterable[str]) -> set[str]:
    found, every = {*without}, config.runs.trajectories
    while True:
        more = {n for n, each in every.items() if not found.isdisjoint(each.sources().values())}
        if more <= found:
            return found
        found |= more
