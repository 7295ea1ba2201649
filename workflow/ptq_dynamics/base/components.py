"""Components: frozen pydantic models, one module each, which are found by their folder.

Their modules import torch and other large libraries inside functions, since planning imports all.
"""

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from importlib import import_module
from inspect import isabstract
from operator import or_
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Discriminator, Field, GetCoreSchemaHandler, Tag
from pydantic_core import CoreSchema

C = TypeVar("C", bound=BaseModel)


@cache
def kinds_in(package: str, base: type[C]) -> tuple[type[C], ...]:
    """Return the public concrete subclasses of `base` in a package, in order of their modules."""
    folder, kinds = import_module(package), list[type[C]]()
    for module in sorted(info.name for info in pkgutil.iter_modules(folder.__path__)):
        for kind in vars(import_module(f"{package}.{module}")).values():
            own = isinstance(kind, type) and kind.__module__ == f"{package}.{module}"
            if own and issubclass(kind, base) and not isabstract(kind) and kind not in kinds:
                kinds += [] if kind.__name__.startswith("_") else [kind]
    return tuple(kinds)


@dataclass(frozen=True)
class OneOf:
    """Annotates the base class of a package's components with the type of any of them. The literal
    field `by`, or the class name that a function returns, discriminates between them."""

    package: str
    by: str | Callable[..., str]

    def __get_pydantic_core_schema__(
        self, base: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        # Types that are made at run time have no static type.
        kinds: Any = [Annotated[kind, Tag(kind.__name__)] for kind in kinds_in(self.package, base)]
        if len(kinds) < 2:
            return handler(kinds[0] if kinds else base)
        kind = reduce(or_, kinds)
        by = Field(discriminator=self.by) if isinstance(self.by, str) else Discriminator(self.by)
        return handler.generate_schema(Annotated[kind, by])
