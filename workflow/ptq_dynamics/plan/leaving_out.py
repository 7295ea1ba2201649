"""Runs that a scale cannot make in the paper's regime: neither they nor what is made of them is
planned, and figures go without them."""

from ptq_dynamics.config import Config, Figure

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
    return config.model_copy(update={"runs": runs, "figures": figures}), gone


def _with_offspring(config: Config) -> set[str]:
    found = {*config.scale.regime.left_out}
    every = {**config.runs.runs, **config.runs.averages}
    while True:
        more = {n for n, each in every.items() if not found.isdisjoint(each.sources().values())}
        if more <= found:
            return found
        found |= more
