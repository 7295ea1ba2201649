"""Runs that a scale cannot make in the paper's regime: neither they nor what is made of them is
planned, and figures go without them."""

from collections.abc import Mapping

from ptq_dynamics.config import Config, Figure
from ptq_dynamics.problem import Problem

Names = tuple[str, ...]


def leave_out(config: Config) -> tuple[Config, dict[str, Names]]:
    """The configuration without what its scale leaves out; and which trajectories each figure, by
    its name, goes without. A figure that has none left is left out too."""
    names = _with_offspring(config)
    if not names:
        return config, dict.fromkeys(config.figures, ())
    runs = config.runs.model_copy(
        update={
            key: {
                name: each for name, each in getattr(config.runs, key).items() if name not in names
            }
            for key in ("runs", "averages")
        }
    )
    figures, gone = dict[str, Figure](), dict[str, Names]()
    for name, figure in config.figures.items():
        gone[name] = tuple(each for each in figure.trajectories if each in names)
        curves = {
            label: tuple(each for each in members if each not in names)
            for label, members in figure.curves.items()
        }
        curves = {label: members for label, members in curves.items() if members}
        if curves:
            figures[name] = figure.model_copy(update={"curves": curves})
    _check_what_is_left(config, {*runs.runs, *runs.averages}, figures)
    return config.model_copy(update={"runs": runs, "figures": figures}), gone


def _check_what_is_left(config: Config, names: set[str], figures: Mapping[str, Figure]) -> None:
    place = f"config/scales/{config.choice.scale}.yaml: regime.left_out"
    chosen = config.choice.figures
    for name in config.figures if chosen == "all" else chosen:
        if name not in figures and (chosen != "all" or not figures):
            raise Problem(
                f"{place} leaves nothing of figure {name}; choose others, or leave out less"
            )
    if config.backends.trajectory not in names:
        raise Problem(
            f"{place} leaves out {config.backends.trajectory}, or what it is made of, which "
            "config/backends.yaml compares backends on; name another trajectory there"
        )


def _with_offspring(config: Config) -> set[str]:
    found = {*config.scale.regime.left_out}
    every = {**config.runs.runs, **config.runs.averages}
    while True:
        more = {n for n, each in every.items() if not found.isdisjoint(each.sources().values())}
        if more <= found:
            return found
        found |= more
