"""What differs from cluster to cluster: the type of profiles/slurm/site.yaml."""

from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Strict

Positive = Annotated[int, Field(gt=0)]
# What `sbatch` takes as one word.
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,:&|\[\]*=+@/-]+$")]


class ClusterSite(Strict):
    """How jobs are sent to a cluster. What is null is left to the cluster's defaults.

    `longest_minutes` is the longest time limit to ask for; jobs that are expected to be short run
    one after the other in one SLURM job of about `pack_minutes`; `notice_seconds` before its limit
    a job is called back, saves its state and is queued again; every `poll_seconds` the queue is
    asked for what runs.
    """

    account: Word | None = None
    qos: Word | None = None
    constraint: Word | None = None
    reservation: Word | None = None
    partition: Word | None = None
    gpu_partition: Word | None = None
    gpu_model: Word | None = None
    longest_minutes: Positive
    pack_minutes: Annotated[float, Field(gt=0)]
    notice_seconds: Positive
    poll_seconds: Positive
