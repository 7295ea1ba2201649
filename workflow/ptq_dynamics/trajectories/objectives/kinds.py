"""Kinds of objective, one class each, as they are in configuration.

`module` names the module beside this one; `settings` is what its dataclass `Settings` has.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field


class Kind(BaseModel):
    """What every kind answers."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    module: ClassVar[str]
    # Whether it is learned from dialogues.
    of_dialogues: ClassVar[bool] = True

    @property
    def settings(self) -> dict[str, Any]:
        """What its module is told."""
        return self.model_dump(exclude={"kind"})


class Language(Kind):
    """The next token of plain text."""

    module: ClassVar[str] = "language"
    of_dialogues: ClassVar[bool] = False
    kind: Literal["language"]


class Answers(Kind):
    """The answers of dialogues."""

    module: ClassVar[str] = "answers"
    kind: Literal["answers"]


class Preferences(Kind):
    """The right of two answers, by APO-zero or APO-down, with its β."""

    module: ClassVar[str] = "preferences"
    kind: Literal["preferences"]
    anchor: Literal["zero", "down"]
    beta: Annotated[float, Field(gt=0, allow_inf_nan=False)]


Objective = Annotated[Language | Answers | Preferences, Field(discriminator="kind")]
