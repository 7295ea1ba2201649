"""Kinds of objective, one class each, as they are in configuration.

`module` names the module beside this one; `settings` is a dataclass, its `Settings`.
"""

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from ptq_dynamics.train.objectives import settings


class Kind(BaseModel):
    """What every kind answers."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    module: ClassVar[str]
    # Whether it is learned from dialogues.
    of_dialogues: ClassVar[bool] = True

    @abstractmethod
    def settings(self) -> object:
        """What its module is told."""


class Language(Kind):
    """The next token of plain text."""

    module: ClassVar[str] = "language"
    of_dialogues: ClassVar[bool] = False
    kind: Literal["language"]

    def settings(self) -> settings.Nothing:
        """Nothing."""
        return settings.Nothing()


class Answers(Kind):
    """The answers of dialogues."""

    module: ClassVar[str] = "answers"
    kind: Literal["answers"]

    def settings(self) -> settings.Nothing:
        """Nothing."""
        return settings.Nothing()


class Preferences(Kind):
    """The right of two answers, by APO-zero or APO-down, with its β."""

    module: ClassVar[str] = "preferences"
    kind: Literal["preferences"]
    anchor: Literal["zero", "down"]
    beta: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    def settings(self) -> settings.Preferences:
        """All of it."""
        return settings.Preferences(self.anchor, self.beta)


Objective = Annotated[Language | Answers | Preferences, Field(discriminator="kind")]
