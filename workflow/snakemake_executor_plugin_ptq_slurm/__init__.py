"""The executor `ptq-slurm` of Snakemake, which finds it by the name of this package, and imports it
whenever it starts."""

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

# Snakemake's own plugin, which takes a third of a start, is there where a cluster is.
IS_COMPLETE = find_spec("snakemake_executor_plugin_slurm") is not None

if IS_COMPLETE:
    from ptq_dynamics.cluster.executor import Executor as Executor
    from snakemake_executor_plugin_slurm import ExecutorSettings as Base
else:
    Base = ExecutorSettingsBase

    class Executor(RemoteExecutor):  # type: ignore[no-redef]
        """Says what is missing."""

        def __init__(self, *_: Any) -> None:
            raise WorkflowError(
                "Snakemake's plugin for SLURM is not installed: make figures PROFILE=slurm brings "
                "it, or pip install --no-deps -r envs/slurm.txt"
            )

        def run_job(self, job: Any) -> None:
            """Never reached."""

        def cancel_jobs(self, active_jobs: Any) -> None:
            """Never reached."""

        async def check_active_jobs(self, active_jobs: Any) -> Any:
            """Never reached."""


@dataclass
class ExecutorSettings(Base):
    """Those of the plugin for SLURM, and the site file."""

    site: Optional[Path] = field(  # noqa: UP045 (Snakemake reads the type)
        default=None, metadata={"help": "YAML file of what differs from cluster to cluster"}
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=1,
)
