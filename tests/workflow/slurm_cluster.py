"""A SLURM cluster on this machine: two virtual nodes with a fake GPU each, and accounting.

`python tests/workflow/slurm_cluster.py FOLDER -- COMMAND` runs a command in it. It needs root and
Debian's slurm-wlm, slurmdbd, munge and mariadb-server, and is meant for containers and CI machines;
it touches no configuration of the system.
"""

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

PACKAGES = ("slurm-wlm", "slurmdbd", "munge", "mariadb-server")
PROGRAMS = (
    "setpriv",
    "munged",
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "mariadbd",
    "mariadb-install-db",
    "sbatch",
)
NODES = ("n1", "n2")
# The last of these has priority, and takes nodes from jobs of the first.
PARTITIONS = ("main", "urgent")
SECONDS = 60  # for a daemon to answer
STATE = "state"


class Unavailable(Exception):
    """Why there can be no cluster here, in one line."""


class Cluster:
    """Daemons of a cluster, whose files all lie below one folder."""

    def __init__(self, folder: Path, cpus: int = 1, memory_mb: int = 6000) -> None:
        self.folder, self._cpus, self._memory = folder, cpus, memory_mb
        self._processes = dict[str, subprocess.Popen[bytes]]()
        self._controller, self._accounting, self._database = _ports(3)
        self._ports = dict(zip(NODES, _ports(len(NODES)), strict=True))
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        # Variables of a cluster that this machine may itself be part of.
        for name in list(self.environment):
            if name.startswith(("SLURM_", "SBATCH_")) and name != "SLURM_CONF":
                del self.environment[name]

    # Starting and stopping

    def start(self) -> None:
        """Write the configuration and start all daemons; `Unavailable` where that cannot be."""
        require()
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o755)
        self._configure()
        munge = self.folder / "munge"
        self._run("munged", "munged", "--foreground", "--force", f"--socket={munge}/socket",
                  f"--key-file={munge}/key", f"--pid-file={munge}/pid", f"--seed-file={munge}/seed",
                  f"--log-file={munge}/log", "--num-threads=2")  # fmt: skip
        _until("munged", lambda: (munge / "socket").exists())
        data = self.folder / "database"
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root",
             "--auth-root-authentication-method=socket", "--skip-test-db"],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._run("mariadbd", "mariadbd", "--no-defaults", f"--datadir={data}", "--user=root",
                  f"--socket={self._socket}", f"--port={self._database}",
                  "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=64M")  # fmt: skip
        _until("mariadbd", self._socket.exists)
        _until("mariadbd", lambda: self._sql("SELECT 1"))
        self._sql("CREATE DATABASE slurm; CREATE USER slurm@localhost IDENTIFIED BY 'slurm'; "
                  "GRANT ALL ON slurm.* TO slurm@localhost")  # fmt: skip
        self._run("slurmdbd", "slurmdbd", "-D")
        _until("slurmdbd", lambda: self._answers("sacctmgr", "-n", "show", "cluster"))
        self.start_controller()
        # The controller makes itself known to the database.
        _until("the database", lambda: "ptq" in self._ask("sacctmgr", "-n", "show", "cluster"))
        for command in ("account lab cluster=ptq", "user root account=lab"):
            self._ask("sacctmgr", "-i", "add", *command.split())
        for node in NODES:
            self.start_node(node)
        _until("the nodes", lambda: self.states() == dict.fromkeys(NODES, "idle"))

    def start_controller(self) -> None:
        """Start slurmctld."""
        self._run("slurmctld", "slurmctld", "-D")
        _until("slurmctld", lambda: self._answers("scontrol", "ping"))

    def kill_controller(self) -> None:
        """End slurmctld at once."""
        self._kill("slurmctld")

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        self._run(node, "slurmd", "-D", "-N", node)

    def kill_node(self, node: str) -> None:
        """End the daemons of a node at once; what runs there runs on, as if the network failed."""
        self._kill(node)
        for pid, command in _commands():
            if command.startswith("slurmstepd") and f"[{node}]" in command:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End all daemons, and what they started."""
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            self._ask("scancel", "--user=root", "--full")
            _until("the queue to be empty", lambda: not self.queue(), 10)
        for name in reversed(list(self._processes)):
            self._kill(name, signal.SIGTERM if name == "mariadbd" else signal.SIGKILL)
        for pid, command in _commands():
            if command.startswith("slurmstepd") and str(self.folder) in _environment(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # Asking

    def run(self, *command: str) -> str:
        """What a command of SLURM prints."""
        return self._ask(*command)

    def states(self) -> dict[str, str]:
        """State of each node."""
        lines = self._ask("sinfo", "-h", "-N", "-p", PARTITIONS[0], "-o", "%N %t").splitlines()
        return dict(line.split()[:2] for line in lines)

    def queue(self) -> list[tuple[str, str]]:
        """Id and state of each task that has not ended."""
        lines = self._ask("squeue", "-h", "-r", "-o", "%i %T").splitlines()
        return [(line.split()[0], line.split()[1]) for line in lines]

    def submitted(self) -> int:
        """How many jobs were ever submitted; an array counts once."""
        ids = self._ask("sacct", "-X", "-n", "-a", "-D", "-S", "2020-01-01", "-o", "JobID%30")
        return len({line.strip().split("_")[0] for line in ids.splitlines() if line.strip()})

    # Inside

    @property
    def _socket(self) -> Path:
        return self.folder / "database.socket"

    def _configure(self) -> None:
        folder = self.folder
        for name in ("munge", "database", STATE, "dev", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir(exist_ok=True)
        (folder / "munge").chmod(0o755)
        key = folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        device = os.makedev(1, 3)
        for number, _ in enumerate(NODES):
            # Another null device: what SLURM wants of a GPU is a file.
            os.mknod(folder / "dev" / f"nvidia{number}", 0o666 | 0o020000, device)
        auth = f"{folder}/munge/socket"
        host = socket.gethostname().split(".")[0]
        nodes = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={self._cpus} RealMemory={self._memory} Gres=gpu:fake:1"
            for node, port in self._ports.items()
        ]
        partitions = [
            f"PartitionName={name} Nodes={','.join(NODES)} MaxTime=INFINITE State=UP "
            f"PriorityTier={tier} Default={'YES' if tier == 1 else 'NO'}"
            for tier, name in enumerate(PARTITIONS, 1)
        ]
        lines = [
            "ClusterName=ptq", f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={self._controller}", "SlurmUser=root", "SlurmdUser=root",
            # Jobs that are queued again wait for so many seconds, else for two minutes.
            "AuthType=auth/munge", f"AuthInfo=socket={auth},cred_expire=30",
            "CryptoType=crypto/munge",
            f"StateSaveLocation={folder}/{STATE}", f"SlurmdSpoolDir={folder}/spool-%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid", f"SlurmdPidFile={folder}/%n.pid",
            f"SlurmctldLogFile={folder}/slurmctld.log", f"SlurmdLogFile={folder}/%n.log",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU_Memory",
            "DefMemPerCPU=500", "GresTypes=gpu", "ReturnToService=2", "SlurmdTimeout=20",
            "SlurmdParameters=config_overrides", "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE", "JobRequeue=1", "MinJobAge=300", "KillWait=10",
            "JobAcctGatherType=jobacct_gather/linux", "JobAcctGatherFrequency=2",
            "JobAcctGatherParams=OverMemoryKill",
            "SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_interval=5",
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1", f"AccountingStoragePort={self._accounting}",
            f"AccountingStoragePass={auth}", "AccountingStoreFlags=job_comment",
            *nodes, *partitions,
        ]  # fmt: skip
        (folder / "slurm.conf").write_text("".join(f"{line}\n" for line in lines))
        gres = [
            f"NodeName={node} Name=gpu Type=fake File={folder}/dev/nvidia{number} "
            "Flags=nvidia_gpu_env"
            for number, node in enumerate(NODES)
        ]
        (folder / "gres.conf").write_text("".join(f"{line}\n" for line in gres))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        database = folder / "slurmdbd.conf"
        database.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={auth}\nDbdHost={host}\nDbdAddr=127.0.0.1\n"
            f"DbdPort={self._accounting}\nSlurmUser=root\nPidFile={folder}/slurmdbd.pid\n"
            f"LogFile={folder}/slurmdbd.log\nStorageType=accounting_storage/mysql\n"
            f"StorageHost=localhost\nStoragePort={self._database}\nStorageUser=slurm\n"
            "StoragePass=slurm\nStorageLoc=slurm\n"
        )
        database.chmod(0o600)
        self.environment["MYSQL_UNIX_PORT"] = str(self._socket)

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

    def _kill(self, name: str, number: int = signal.SIGKILL) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.send_signal(number)
            process.wait()

    def _sql(self, text: str) -> bool:
        command = ["mariadb", "--no-defaults", f"--socket={self._socket}", "-e", text]
        return subprocess.run(command, capture_output=True).returncode == 0

    def _ask(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=SECONDS
        )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        return done.stdout

    def _answers(self, *command: str) -> bool:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return done.returncode == 0 and "DOWN" not in done.stdout


def require() -> None:
    """Raise `Unavailable` unless a cluster can be started here."""
    if sys.platform != "linux":
        raise Unavailable("a SLURM cluster for tests needs Linux")
    if os.geteuid() != 0:
        raise Unavailable("a SLURM cluster for tests is started as root, in a container")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        raise Unavailable(f"{missing[0]} is missing: apt-get install {' '.join(PACKAGES)}")


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
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _until(what: str, holds: Callable[[], object], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(subprocess.SubprocessError):
            if holds():
                return
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not answer within {seconds} s")
        time.sleep(0.1)


def _commands() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                yield int(entry.name), command


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command in a cluster of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        with running(chosen.folder.absolute()) as cluster:
            return subprocess.run(chosen.command, env=cluster.environment).returncode
    except Unavailable as reason:
        print(f"no cluster: {reason}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
