"""Names as Python finds them: which are local to a function, which are those of the module."""

from ptq_dynamics.engine.fingerprint.references import Import, Raw, Token, Use

Place = tuple[list[Token], int]


class Scope:
    """A module, class, function or comprehension while its text is written.

    Names are put in as they are met. Which of them are local is known at the end, when `finish`
    settles them or hands them on to the scope around.
    """

    def __init__(self, kind: str, around: "Scope | None" = None) -> None:
        self.kind, self.around = kind, around
        self.bound: set[str] = set()
        self.outer: set[str] = set()
        self.of_module: set[str] = set()
        self.imports: dict[str, Import] = {}
        self._met: list[Place] = []
        # Functions in a class do not see its names.
        self._of_functions: list[Place] = []

    def meet(self, out: list[Token], name: str, attributes: tuple[str, ...] = ()) -> None:
        """Append a name, with the attributes after it."""
        self._met.append((out, len(out)))
        out.append(Raw(name, attributes))

    def bind(self, name: str) -> None:
        """Note an assignment; in a comprehension, only its targets are its own."""
        self.bound.add(name)

    def finish(self, out: list[Token], beside: list[Token]) -> None:
        """Settle the names; `out` takes imports that only their effect is wanted of."""
        local = self.bound - self.outer - self.of_module
        used: set[str] = set()
        for place in self._met:
            tokens, index = place
            found = tokens[index]
            assert isinstance(found, Raw)
            name, attributes = found
            if name in self.of_module:
                tokens[index] = Use(name, attributes)
            elif name in self.imports and name not in local:
                used.add(name)
                tokens[index] = Use(self.imports[name], attributes)
            elif name in local:
                tokens[index] = ".".join([name, *attributes])
                if name in self.imports:
                    used.add(name)
                    beside.append(Use(self.imports[name]))
                if self.kind == "class":
                    # Until it is assigned, a class sees the name of the module.
                    beside.append(Use(name, attributes))
            else:
                self._hand_on(place, found)
        for place in self._of_functions:
            tokens, index = place
            found = tokens[index]
            assert isinstance(found, Raw)
            self._hand_on(place, found)
        for name in sorted(self.imports.keys() - used):
            out.append(f"import {name}")
            if self.imports[name].name is None:
                beside.append(Use(self.imports[name]))

    def _hand_on(self, place: Place, found: Raw) -> None:
        around = self.around
        if around is None:
            tokens, index = place
            tokens[index] = Use(found.name, found.attributes)
        elif around.kind == "class":
            around._of_functions.append(place)
        else:
            around._met.append(place)
