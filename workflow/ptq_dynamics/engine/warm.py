"""A process that has imported the large libraries of its jobs already and forks one child per job.

Importing torch and transformers costs seconds, a small job less. While Snakemake runs on one
machine, it keeps one such process. A job (`run.delegate`) finds it through the environment variable
`PTQ_DYNAMICS_WARM`, hands over its specification, environment and standard streams, and waits for
the exit status. After an edit of the package the process starts anew, so that a job runs the code
as it stands. Where there is no such process, jobs import what they need themselves, with the same
results.
"""

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
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from subprocess import PIPE, Popen
from typing import BinaryIO, NoReturn

from ptq_dynamics.base.problem import print_anywhere
from ptq_dynamics.engine import signals
from ptq_dynamics.engine.run import QUIET, VARIABLE

# glibc otherwise gives each step's large tensors back to the system and asks for them again.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
# What jobs import of the libraries they compute with, and takes seconds.
MODULES = (
    "transformers.models.gpt_neox.modeling_gpt_neox",
    "bitsandbytes",
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


def start(libraries: Iterable[str], modules: Iterable[str]) -> None:
    """Start a server with these libraries, and modules of the package, for this process and its
    children; it ends when this process ends."""
    with suppress(OSError):
        address = f"{tempfile.mkdtemp(prefix='ptq-dynamics-')}/socket"
        names = [" ".join(sorted(libraries)), *sorted(modules)]
        command = [sys.executable, "-m", "ptq_dynamics.engine.warm", address, *names]
        # The kernel closes the pipe with this process, whatever ends it. Jobs get the signals of a
        # terminal from those who wait for them.
        environment = {**os.environ, **ALLOCATOR}
        _servers.append(Popen(command, stdin=PIPE, env=environment, start_new_session=True))
        os.environ[VARIABLE] = address


def serve(address: str, libraries: str, *modules: str) -> None:
    """Import what jobs import of these libraries, and these modules, then fork a child for every
    connection until stdin ends. Jobs that connect meanwhile wait: on few cores, that is sooner
    than if each imported for itself."""
    from ptq_dynamics.engine import code

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1024)
        sources = code.program()
        _prepare(libraries.split(), modules)
        # CUDA does not survive a fork; who waits goes on without.
        if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
            return
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            if code.program() is not sources:
                # Jobs that have connected go on without.
                Path(address).unlink()
                os.execv(sys.executable, sys.orig_argv)
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _serve_one(connection)
            connection.close()


def _prepare(libraries: Iterable[str], modules: Iterable[str]) -> None:
    from ptq_dynamics.engine import code, machine

    print_anywhere()
    os.environ.update(QUIET)
    code.load(modules)
    for module in MODULES:
        if module.split(".")[0] in libraries:
            import_module(module)
    if "transformers" in libraries:
        # Else the first model that a job loads has it built, in a tenth of a second.
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping

        get_checkpoint_conversion_mapping("gpt_neox")
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    machine.commit()
    # The sources are parsed once for all jobs.
    names = (f"{code.PACKAGE}.{name}" for name in modules)
    code.program().reach(code.Node(name, code.WHOLE) for name in names)
    # The garbage collector of a child would otherwise touch, and so copy, all of this memory.
    gc.collect()
    gc.freeze()


def _serve_one(connection: socket.socket) -> NoReturn:
    """Run the job of a connection and end this child, whatever its client does."""
    from ptq_dynamics.engine.execute import execute

    status = 1
    try:
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 2)
        for target, descriptor in enumerate(descriptors, start=1):
            os.dup2(descriptor, target)
            os.close(descriptor)
        stream = connection.makefile("rb")
        request = json.loads(stream.readline())
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        signals.begin_job(request["line"])
        threading.Thread(target=_attend, args=(stream,), daemon=True).start()
        if "torch" in sys.modules and (threads := os.environ.get("OMP_NUM_THREADS")):
            sys.modules["torch"].set_num_threads(int(threads))
        status = execute(request["job"], **request["how"])
        sys.stdout.flush()
        sys.stderr.flush()
        # Its client, once it has the answer, is gone.
        for number in signals.SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        connection.sendall(str(status).encode())
    finally:
        os._exit(status)


def _attend(stream: BinaryIO) -> None:
    """Pass on to the job that it is called back, and that its client has gone."""
    with suppress(OSError):
        while stream.read(1):
            os.kill(os.getpid(), signals.CALL)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    try:
        # Jobs say themselves what cannot be imported.
        with suppress(Exception):
            serve(*sys.argv[1:])
    finally:
        shutil.rmtree(Path(sys.argv[1]).parent, ignore_errors=True)
