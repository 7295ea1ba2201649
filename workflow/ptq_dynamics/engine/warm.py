"""A process that has imported the large libraries of its jobs and forks one child per job.

Importing torch and transformers takes seconds; a small job takes less. While Snakemake runs on one
machine, it keeps one such process. A job (`run.delegate`) finds it by the variable
`PTQ_DYNAMICS_WARM`, sends its specification, environment and standard streams, and waits for the
exit status. After an edit of the package the process ends. Results are the same without it."""

import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from subprocess import PIPE, Popen
from types import ModuleType
from typing import NoReturn

from threadpoolctl import threadpool_limits

from ptq_dynamics.engine import checkout
from ptq_dynamics.engine.lease import VISIBLE, visible
from ptq_dynamics.engine.paths import Spec
from ptq_dynamics.engine.run import ALONE, QUIET, VARIABLE, JobRequest, end_at_once

# By default, glibc returns large tensors to the system after each step and requests them again.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
# CUDA does not survive a fork, so imports in this process must not find a device.
HIDDEN = {VISIBLE: "", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
PATIENCE = 5.0  # seconds in which a client has to send its request
BEGINNING = 30.0  # seconds in which CUDA has to start
BITS = "bitsandbytes"
MODULES = (  # of libraries, whose import takes seconds
    "transformers.models.gpt_neox.modeling_gpt_neox",
    BITS,
    "datasets",
    "llmcompressor.modeling.moe.gpt_oss",
    "llmcompressor.modifiers.gptq",
    "llmcompressor.modifiers.transform.awq",
    "lm_eval.tasks",
    "pandas.io.formats.csvs",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_pdf",
)

_servers: list[Popen[bytes]] = []
_known = set[str]()  # modules and libraries that are imported


def start() -> None:
    """Start a server for this process and its children, unless one runs."""
    if any(server.poll() is None for server in _servers):
        return
    with suppress(OSError):
        address = f"{tempfile.mkdtemp(prefix='ptq-dynamics-')}/socket"
        command = [sys.executable, "-m", "ptq_dynamics.engine.warm", address, *visible()]
        environment = {**os.environ, **checkout.environment(), **ALLOCATOR, **HIDDEN}
        # The kernel closes the pipe, and so ends the server, with this process. The server gets no
        # signals from the terminal; a job ends when its client does.
        _servers.append(Popen(command, stdin=PIPE, env=environment, start_new_session=True))
        os.environ[VARIABLE] = address


def serve(address: str, *devices: str) -> None:
    """For each connection, import the libraries of its job and fork a child, until stdin ends.
    Other jobs wait during an import, which is faster on few cores. Jobs may use the `devices`."""
    from ptq_dynamics.engine import code, machine

    os.environ.update(QUIET)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1024)
        sources = code.program()
        machine.commit()
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            # Jobs that have connected run without this process.
            if code.program() is not sources:
                return
            connection, _ = listener.accept()
            # A client may be killed before it has sent its request.
            with connection, connection.makefile("rb") as stream, suppress(OSError, ValueError):
                connection.settimeout(PATIENCE)
                _, descriptors, _, _ = socket.recv_fds(connection, 1, 2)
                try:
                    request = JobRequest(*json.loads(stream.readline()))
                    connection.settimeout(None)
                    if not _prepare(request.job, devices):
                        connection.sendall(ALONE)
                        return
                    if os.fork() == 0:
                        listener.close()
                        _serve_one(connection, descriptors, request)
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _prepare(job: Spec, devices: Sequence[str]) -> bool:
    """Import the modules of a job and parse their sources. Return whether a child can run the job;
    without this process, the job reports a failing import itself."""
    from ptq_dynamics.engine import code

    if (names := {*job["code"], *job["libraries"]}) <= _known:
        return True
    try:
        code.import_modules(job["code"])
        for module in MODULES:
            # On import, bitsandbytes chooses between the CPU and the device, which is hidden.
            if module.split(".")[0] in job["libraries"] and not (devices and module == BITS):
                import_module(module)
        modules = (code.Node(f"{code.PACKAGE}.{name}", code.WHOLE) for name in job["code"])
        code.program().reach(modules)
    except Exception:
        return False
    if torch := sys.modules.get("torch"):
        if devices and not (_known or _can_begin_cuda(torch, devices[0])):
            return False
        torch.set_num_threads(1)
    _known.update(names)
    # The garbage collector of a child would otherwise write to, and so copy, all of this memory.
    gc.collect()
    gc.freeze()
    return True


def _can_begin_cuda(torch: ModuleType, device: str) -> bool:
    """Return whether a child of this process can compute on a device."""

    def begin() -> None:
        with suppress(Exception):
            os.environ[VISIBLE] = device
            # If CUDA is not available at all, jobs compute on the CPU.
            torch.ones(1, device="cuda" if torch.cuda.is_available() else "cpu").item()
            os._exit(0)
        os._exit(1)

    child = get_context("fork").Process(target=begin)
    child.start()
    child.join(BEGINNING)
    child.kill()
    return child.exitcode == 0


def _serve_one(connection: socket.socket, descriptors: list[int], request: JobRequest) -> NoReturn:
    """Run the job of a connection and end this child."""
    from ptq_dynamics.engine.execute import execute

    status = 1
    try:
        for target, descriptor in enumerate(descriptors, start=1):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.directory)
        end_at_once()
        threading.Thread(target=_attend, args=(connection,), daemon=True).start()
        if threads := os.environ.get("OMP_NUM_THREADS"):
            # The libraries of numpy and scipy read the variable on import; it sets last digits.
            threadpool_limits(int(threads))
            if torch := sys.modules.get("torch"):
                torch.set_num_threads(int(threads))
        status = execute(request.job, request.purpose, request.devices)
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(str(status).encode())
    finally:
        os._exit(status)


def _attend(connection: socket.socket) -> None:
    """End the job when its client ends."""
    with suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    try:
        with suppress(OSError):
            serve(*sys.argv[1:])
    finally:
        shutil.rmtree(Path(sys.argv[1]).parent, ignore_errors=True)
