"""Components: one module each, found by standing in their folder.

A component is a frozen pydantic model: its fields are its configuration, its methods do the work.
Modules import torch and other large libraries inside functions, since planning imports them all.
"""

import pkgutil
from functools import reduce
from importlib import import_module
from inspect import isabstract
from operator import or_
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field

C = TypeVar("C", bound=BaseModel)


def found(package: str, base: type[C]) -> tuple[type[C], ...]:
    """The concrete classes below `base` that the modules of a package define, in order of their
    modules' names."""
    folder, kinds = import_module(package), list[type[C]]()
    for module in sorted(each.name for each in pkgutil.iter_modules(folder.__path__)):
        for each in vars(import_module(f"{package}.{module}")).values():
            own = isinstance(each, type) and each.__module__ == f"{package}.{module}"
            if own and issubclass(each, base) and not isabstract(each) and each not in kinds:
                kinds += [] if each.__name__.startswith("_") else [each]
    return tuple(kinds)


def union(package: str, base: type[BaseModel], by: str) -> Any:
    """The type of any component of a package, told apart by the literal field `by`."""
    kinds = found(package, base)
    return Annotated[reduce(or_, kinds), Field(discriminator=by)] if len(kinds) > 1 else kinds[0]
