"""Values of runs and averages in the words of figures: `LR = {peak_lr of constant-3e-3}`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, reduce
from numbers import Real

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import require
from ptq_dynamics.config.families import Families
from ptq_dynamics.config.runs import Runs
from ptq_dynamics.figures.labels import short

VALUE = re.compile(r"\{\s*([^\s{}]+)\s+of\s+([^\s{}]+)\s*\}")
SHORTENED = ("peak_lr", "weight_decay")  # written as 3e-3


@dataclass(frozen=True)
class References:
    """Fills in values of these runs, and of the runs and averages of these families."""

    runs: Runs
    families: Families

    def filled(self, content: object, place: str) -> object:
        """Return content of a file with values in all texts and keys. `Problem` names the place of
        a wrong one, and of two keys that become equal."""
        if isinstance(content, str):
            return VALUE.sub(partial(self._value, place), content)
        if not isinstance(content, dict):
            return content
        filled = dict[object, object]()
        for written, value in content.items():
            key = self.filled(written, place)
            if key in filled:
                raise Problem(f"{place} has {key!r} twice; change one, or the run that it names")
            filled[key] = self.filled(value, f"{place}.{written}".replace(":.", ": "))
        return filled

    def _value(self, place: str, reference: re.Match[str]) -> str:
        parts, name = reference[1].split("."), reference[2]
        for entry in self._lineage(place, name):
            value = reduce(lambda at, part: getattr(at, part, None), parts, entry)
            if isinstance(value, Real):
                is_short = parts[-1] in SHORTENED and value
                return short(float(value)) if is_short else f"{float(value):g}"
        raise Problem(f"{place} has {reference[0]}, but {name} has no number {reference[1]}")

    def _lineage(self, place: str, name: str) -> Iterator[object]:
        """Yield a run or average, the trunks that it continues, and its family or the defaults."""
        families, runs = self.families, self.runs
        entries = {**families.averages, **families.runs, **runs.averages, **runs.runs}
        require(place, "run or average", [name], entries)
        seen = dict[str, object]()
        while name in entries and name not in seen:
            seen[name] = entries[name]
            name = getattr(entries[name], "trunk", "")
        yield from seen.values()
        last = getattr([*seen.values()][-1], "family", None)
        yield families.families.get(last or "", runs.defaults)
