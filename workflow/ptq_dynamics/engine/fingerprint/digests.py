"""Digests of definitions that refer to each other, in circles too.

A definition's digest covers its text and the digests of what it refers to, so it says what the
definition means and nothing of where that stands. In a circle, the digests start from the texts and
are refined until they have seen all of it.
"""

import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

N = TypeVar("N", bound=Hashable)


class Digests(Generic[N]):
    """Digests of nodes; `parts` gives the text of one, with the nodes that it refers to."""

    def __init__(self, parts: Callable[[N], Sequence[str | N]]) -> None:
        self._parts = parts
        self._found: dict[N, str] = {}

    def whole(self, node: N) -> str:
        """Digest of all that a node means."""
        if node not in self._found:
            self._search(node)
        return self._found[node]

    def _others(self, node: N) -> list[N]:
        return [part for part in self._parts(node) if not isinstance(part, str)]

    def _search(self, start: N) -> None:
        """Tarjan's strongly connected components, the innermost first."""
        number: dict[N, int] = {start: 0}
        lowest = {start: 0}
        stack, is_open = [start], {start}
        path = [(start, iter(self._others(start)))]
        while path:
            node, others = path[-1]
            for other in others:
                if other in self._found:
                    continue
                if other not in number:
                    number[other] = lowest[other] = len(number)
                    stack.append(other)
                    is_open.add(other)
                    path.append((other, iter(self._others(other))))
                    break
                if other in is_open:
                    lowest[node] = min(lowest[node], number[other])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == number[node]:
                    at = stack.index(node)
                    circle = stack[at:]
                    del stack[at:]
                    is_open.difference_update(circle)
                    self._settle(circle)

    def _settle(self, circle: list[N]) -> None:
        current = dict.fromkeys(circle, "")
        # One more round than nodes: each has then seen every other.
        rounds = len(circle) + 1 if self._turns(circle) else 1
        for _ in range(rounds):
            current = {node: self._digest(node, current) for node in circle}
        self._found |= current

    def _turns(self, circle: list[N]) -> bool:
        return len(circle) > 1 or circle[0] in self._others(circle[0])

    def _digest(self, node: N, current: dict[N, str]) -> str:
        content = hashlib.sha256()
        for part in self._parts(node):
            if isinstance(part, str):
                content.update(part.encode() + b"\0")
            else:
                content.update(b"\1" + (self._found.get(part) or current[part]).encode())
        return content.hexdigest()
