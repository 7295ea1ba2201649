"""One call of sbatch for an array of packs."""

import shlex
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string

from ptq_dynamics.cluster.asked import Array, Asked
from ptq_dynamics.config.site import ClusterSite as Site

# What sbatch says where the controller is away for a while, or takes no more jobs for now.
LATER = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Resource temporarily unavailable",
    "MaxSubmitJob",
    "temporarily unable to accept job",
)


class Refused(Exception):
    """SLURM does not take an array; `later` if it may take it in a while."""

    def __init__(self, reason: str) -> None:
        super().__init__(" ".join(reason.split()))
        self.later = any(sign in reason for sign in LATER)


class _Resources(dict[str, Any]):
    """Resources as the plugin reads them: by key and by attribute."""

    __getattr__ = dict.__getitem__


@dataclass(frozen=True)
class _Request:
    """What the plugin takes for a job of Snakemake."""

    threads: int
    resources: _Resources


def submit(
    array: Array, folder: Path, site: Site, logs: Path, settings: Any, without: Collection[str]
) -> str:
    """Submit what is written down in `folder`, for all nodes but some; the array's id.

    Raises `Refused`.
    """
    asked = array.asked
    partition = site.gpu_partition if asked.gpus and site.gpu_partition else site.partition
    request = _Request(asked.threads, _Resources(_wanted(asked, site)))
    logs.mkdir(parents=True, exist_ok=True)
    named = {
        "run_uuid": folder.name,
        "slurm_logfile": logs / "%A_%a.log",
        "comment_str": "ptq-dynamics",
        "account": f"-A {shlex.quote(site.account)}" if site.account else "",
        "partition": f"-p {shlex.quote(partition)}" if partition else "",
        "workdir": Path.cwd(),
    }
    call = get_submit_command(request, named, settings=settings, failed_nodes=set(without))
    call += set_gres_string(request)
    call += f" --array=0-{len(array.packs) - 1} --open-mode=append"
    call += f" --signal=B:USR1@{site.notice_seconds}"
    if site.reservation:
        call += f" --reservation={shlex.quote(site.reservation)}"
    node = [sys.executable, "-m", "ptq_dynamics.cluster.node"]
    script = f"#!/bin/sh\nexec {shlex.join([*node, str(folder), str(site.notice_seconds)])}\n"
    done = subprocess.run(
        ["/bin/sh", "-c", call], input=script, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout.strip().split(";")[0]


def _wanted(asked: Asked, site: Site) -> dict[str, Any]:
    # SLURM may call back a minute earlier than it is told to.
    minutes = asked.minutes + site.notice_seconds // 60 + 2
    wanted = {
        "runtime": min(minutes, site.longest_minutes),
        "mem_mb": asked.memory_mb,
        "constraint": site.constraint,
        "qos": site.qos,
    }
    if asked.gpus:
        wanted |= {"gpu": asked.gpus, "gpu_model": site.gpu_model or asked.gpu_model}
    return {name: value for name, value in wanted.items() if value}
