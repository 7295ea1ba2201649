"""Start the process that imports the big libraries ahead of the jobs (see `server`)."""

import os
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE, Popen

from ptq_dynamics.jobs import checkout
from ptq_dynamics.jobs.warm.client import VARIABLE

# glibc otherwise gives each step's large tensors back to the system and asks for them again.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}

_servers: list[Popen[bytes]] = []


def start() -> None:
    """Start a server for this process and its children; it ends when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="ptq-dynamics-"))
    command = [sys.executable, "-m", "ptq_dynamics.jobs.warm.server", str(folder / "socket")]
    # The pipe stays open until the kernel closes it with this process, whatever ends it.
    environment = {**os.environ, **ALLOCATOR, **checkout.environment()}
    _servers.append(Popen(command, stdin=PIPE, env=environment))
    os.environ[VARIABLE] = str(folder / "socket")
