"""Settings of the stage that fetches checkpoints of public families, as they cross the job
border."""

from dataclasses import dataclass

from ptq_dynamics.hub.files import HubFile


@dataclass(frozen=True)
class Revision:
    """A checkpoint as the hub has it: a revision of a repository, with the commit and the files
    that the lock has for it, if it has it; and what it is in its trajectory (see `Checkpoint`)."""

    id: str
    revision: str
    commit: str | None
    files: tuple[HubFile, ...]
    step: int | None
    tokens: int | None
    lr: float | None
    phase: str


@dataclass(frozen=True)
class Code:
    """The code of a repository at a commit, that its checkpoints come with; `files` as the lock has
    them, None where it has not."""

    commit: str
    files: tuple[HubFile, ...] | None


@dataclass(frozen=True)
class FetchSettings:
    """Revisions of one repository; `parameters` is how many a model of them has (None: those that
    its files hold are counted). With `convert`, weights that are there only as pickles are taken
    and saved as safetensors; where they are in a `format` that transformers does not read, they are
    saved in one that it does. Trusted `code` lies beside each of them."""

    repository: str
    revisions: tuple[Revision, ...]
    parameters: int | None
    convert: bool = False
    format: str | None = None
    code: Code | None = None
