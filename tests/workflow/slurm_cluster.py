"""A SLURM cluster of two virtual nodes on this machine, without accounting.

It needs root and Debian's slurm-wlm and munge, and is meant for containers and CI machines; it
touches no configuration of the system.
"""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PROGRAMS = ("setpriv", "munged", "slurmctld", "slurmd", "sbatch", "srun")
NODES = ("n1", "n2")
SECONDS = 60  # for a daemon to answer


class Cluster:
    """Daemons of a cluster, whose files all lie below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes = dict[str, subprocess.Popen[bytes]]()
        self._controller, *ports = _ports(1 + len(NODES))
        self._ports = dict(zip(NODES, ports, strict=True))
        # Without variables of a cluster that this machine may itself be part of.
        known = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
        path = f"{folder}/bin:{known.get('PATH', '')}:/usr/sbin:/sbin"
        self.environment = {**known, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}

    def start(self) -> None:
        """Write the configuration and start all daemons."""
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o755)
        self._configure()
        munge = self.folder / "munge"
        self._run("munged", "munged", "--foreground", "--force", f"--socket={munge}/socket",
                  f"--key-file={munge}/key", f"--pid-file={munge}/pid", f"--seed-file={munge}/seed",
                  f"--log-file={munge}/log", "--num-threads=2")  # fmt: skip
        _until("munged", (munge / "socket").exists)
        self._run("slurmctld", "slurmctld", "-D")
        _until("slurmctld", lambda: "UP" in self.run("scontrol", "ping"))
        for node in NODES:
            self._run(node, "slurmd", "-D", "-N", node)
        _until(
            "the nodes", lambda: self.run("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * 2
        )

    def stop(self) -> None:
        """End all jobs and daemons."""
        with contextlib.suppress(subprocess.SubprocessError, OSError, TimeoutError):
            self.clear()
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()

    def clear(self) -> None:
        """End all jobs."""
        self.run("scancel", "--user=root", "--full")
        _until("the queue", lambda: not self.run("squeue", "-h"))

    def run(self, *command: str) -> str:
        """What a command of SLURM prints."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=SECONDS
        )
        done.check_returncode()
        return done.stdout

    def _configure(self) -> None:
        folder = self.folder
        for name in ("bin", "munge", "state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir()
        (folder / "munge").chmod(0o755)
        key = folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        # Snakemake's plugin takes all variables of SLURM away before it calls srun.
        srun = folder / "bin" / "srun"
        real = shutil.which("srun", path=self.environment["PATH"])
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {real} "$@"\n')
        srun.chmod(0o755)
        host = socket.gethostname().split(".")[0]
        socket_of_munge = f"{folder}/munge/socket"
        lines = [
            "ClusterName=ptq", f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={self._controller}", "SlurmUser=root", "SlurmdUser=root",
            # Jobs that are queued again wait for so many seconds, else for two minutes.
            "AuthType=auth/munge", f"AuthInfo=socket={socket_of_munge},cred_expire=15",
            "CryptoType=crypto/munge",
            f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/spool-%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid", f"SlurmdPidFile={folder}/%n.pid",
            f"SlurmctldLogFile={folder}/slurmctld.log", f"SlurmdLogFile={folder}/%n.log",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU_Memory",
            "DefMemPerCPU=500", "ReturnToService=2", "SlurmdTimeout=20", "BatchStartTimeout=1",
            "SlurmdParameters=config_overrides", "JobRequeue=1", "MinJobAge=300", "KillWait=10",
            "SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_interval=5",
            *(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
              "CPUs=2 RealMemory=12000" for node, port in self._ports.items()),
            f"PartitionName=main Nodes={','.join(NODES)} MaxTime=INFINITE State=UP Default=YES",
        ]  # fmt: skip
        (folder / "slurm.conf").write_text("".join(f"{line}\n" for line in lines))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    def _run(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                # They end with this process, whatever ends it.
                ["setpriv", "--pdeathsig", "KILL", *command],
                env=self.environment,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                start_new_session=True,
            )


def missing() -> str | None:
    """Why no cluster can be started here, if so."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a SLURM cluster for tests is started as root on Linux, in a container"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return f"{absent[0]} is missing: apt-get install slurm-wlm munge" if absent else None


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A cluster, stopped at the end."""
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _until(what: str, holds: Callable[[], object], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(subprocess.SubprocessError):
            if holds():
                return
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not answer within {seconds} s")
        time.sleep(0.1)
