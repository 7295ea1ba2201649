"""What a scale's jobs ask of a machine: a table of numbers, a row a rule.

No result depends on it. A cluster is asked for these numbers, times the number of the attempt; on
one machine nothing asks.
"""

from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Strict

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Amounts(Strict):
    """Time limit in `minutes`, main `memory` in MB, and `gpus`; of `gpus`, parts are rounded up."""

    minutes: Amount = 0
    memory: Amount = 0
    gpus: Amount = 0


class Request(Amounts):
    """What one job of a rule asks for, and how much more it asks for with each billion weights of
    the model that it is about."""

    per_billion: Amounts = Amounts()


class Requests(Strict):
    """The request of each of some `rules` of Snakemake and, for all others, the `default`.
    `gpu_model` is what the cluster calls its GPUs; any will do where it is null."""

    gpu_model: str | None = None
    default: Request
    rules: dict[str, Request] = {}
