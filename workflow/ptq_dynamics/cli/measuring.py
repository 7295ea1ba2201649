"""`ptq-dynamics measure`: write a project for own checkpoints, and build it. With `--watch`, do so
again as checkpoints come and go."""

import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import chdir, suppress
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen
from ptq_dynamics.cli.chosen import words

if TYPE_CHECKING:
    from ptq_dynamics.hub.folders import LocalFile

Number = int | None
Text = str | None
Words = list[str] | None
POLL = 2.0  # seconds between looks at the folders
Files = frozenset[tuple[Path, "LocalFile"]]  # with the folders of their checkpoints
METHODS = (
    "gptq rtn awq (2 to 8 bits); nvfp4 nvfp4-weights mxfp4 q4_0 q4_1 gguf-mxfp4 (4 bits); "
    "q5_0 q5_1 (5 bits); fp8 int8 q8_0 (8 bits); others of config/quantizers.yaml; a .gguf file"
)


def measure(
    places: Annotated[
        list[str],
        Argument(help="folder of checkpoints, one checkpoint, or OWNER/NAME; of each run"),
    ],
    names: Annotated[Words, Option(help="of runs on the page; default: folders")] = None,
    revisions: Annotated[Text, Option(help="branches of OWNER/NAME, as 'step*'")] = None,
    step: Annotated[Text, Option(help=r"names of folders; a group is the step: 's-(\d+)'")] = None,
    methods: Annotated[Words, Option(help=f"{METHODS}; default: gptq")] = None,
    bits: Annotated[Words, Option(help="of gptq rtn awq; default: '4 3'")] = None,
    average: Annotated[Number, Option(help="checkpoints in each average; default: 5")] = None,
    curvature: Annotated[bool, Option("--curvature", help="also eigenvalue and trace")] = False,
    tasks: Annotated[Words, Option(help="of config/tasks.yaml, for accuracy")] = None,
    text: Annotated[Text, Option(help="file, folder or data set; default: docstrings")] = None,
    field: Annotated[Text, Option(help="of --text, with text or chats; default: text")] = None,
    tokens: Annotated[Number, Option(help="validation tokens; default: 32768")] = None,
    context: Annotated[Number, Option(min=2, help="tokens in a block; default: 512")] = None,
    batch: Annotated[Number, Option(min=1, help="blocks in memory at once; default: 4")] = None,
    tokens_per_step: Annotated[float | None, Option(help="tokens in a step of the run")] = None,
    lr: Annotated[Text, Option(help="CSV file with step and lr, a rate, or trainer_state")] = None,
    every: Annotated[Number, Option(help="measure one checkpoint in so many")] = None,
    last: Annotated[Number, Option(help="measure so many checkpoints at the end")] = None,
    exclude: Annotated[Words, Option(help="names to leave out, as 'checkpoint-5*'")] = None,
    skip: Annotated[bool, Option("--skip", help="leave out matrices that methods refuse")] = False,
    no_bos: Annotated[bool, Option("--no-bos", help="no BOS in blocks, as with --scale")] = False,
    trust_remote_code: Annotated[
        bool, Option("--trust-remote-code", help="run the model's own code, of a folder or commit")
    ] = False,
    keep: Annotated[bool, Option("--keep", help="keep the weights of averages")] = False,
    jobs: Annotated[Number, Option(min=1, help="jobs at once; default: as memory allows")] = None,
    watch: Annotated[bool, Option("--watch", help="measure new checkpoints as they come")] = False,
    piped: Annotated[bool, Option("--piped", hidden=True)] = False,
    seed: Annotated[int, Option(help="seed of random choices")] = 0,
    scale: Annotated[Text, Option(help="use its text and settings; default: own settings")] = None,
    out: Annotated[Path | None, Option(help="output folder; default: own/NAME")] = None,
    profile: Annotated[str, Option(help="Snakemake profile: slurm, or a path")] = "default",
) -> bool:
    """Measure how your own checkpoints change under quantization.

    To give several words, repeat the option, or quote them.

    Example: ptq-dynamics measure ~/runs/mine --last 4"""
    from ptq_dynamics.cli import own, own_scale, project
    from ptq_dynamics.cli.project import claimed, names_of

    workflow_profile, runs = chosen.profile(profile), names_of(places, words(names))
    metrics = ["sharpness", "hessian_trace"] * curvature + ["accuracy"] * bool(tasks)
    # Before all else, since a wrong method ends the command.
    own_scale.quantizers(words(methods), words(bits), places[0])
    named = text or (f"scale {scale}" if scale else "docstrings")

    def once() -> None:
        with claimed(out, places, runs) as root:
            rate = own_scale.relative(lr, root) if lr and Path(lr).is_file() else lr
            options: own_scale.Yaml = {"rate": None if rate == "trainer_state" else rate}
            options |= {"tokens_per_step": tokens_per_step, "every": every, "last": last}
            options |= {"skip": skip, "bos": not (no_bos or scale)}
            given = {key: value for key, value in options.items() if value is not None}
            entries, left = dict[str, own_scale.Yaml](), list[str]()
            for key, place in zip(project.keys(runs), places, strict=True):
                source = root, key, place, revisions, step, words(exclude)
                entries[key] = project.checkpoints(*source, trusts_code=trust_remote_code) | given
                left += project.complete(root, key, entries[key])
            is_lone = all(project.kept(root, *of)[1] == 1 for of in entries.items())
            settings = own_scale.scale(
                root,
                scale,
                text,
                field,
                tokens,
                words(tasks),
                curvature=curvature,
                # The scatter of one checkpoint is that between two calibration sets.
                draws=2 if is_lone and scale is None and not watch else 1,
                context=context,
                batch=batch,
                keep=keep,
            )
            left += project.write(
                root,
                dict(zip(runs, entries.values(), strict=True)),
                own_scale.quantizers(words(methods), words(bits), places[0], root),
                settings,
                average=average,
                metrics=metrics,
                seed=seed,
                grows=watch,
            )
            with chdir(root):
                files = own.measure(workflow_profile, named, jobs, left)
            print("written:", ", ".join(str(root / file) for file in files), flush=True)

    if watch:
        _watch([Path(place) for place in places], once, piped=piped)
    else:
        once()
    return True


def _watch(folders: Sequence[Path], measure: Callable[[], None], *, piped: bool) -> None:
    """Call `measure` whenever checkpoints in folders are complete, or deleted; print its errors.
    If `piped`, input or the end of the standard input ends this, after a last call."""
    if lacking := [str(folder) for folder in folders if not folder.is_dir()]:
        raise Problem(f"--watch: {lacking[0]} is no folder; create it, or leave --watch out")
    print(f"watching {', '.join(map(str, folders))}; press Ctrl-C to end", flush=True)
    before, is_last = Files(), False
    while True:
        is_last |= piped and bool(select.select([sys.stdin], [], [], 0)[0])
        now = _files(folders)
        time.sleep(POLL)
        if now != _files(folders):
            continue  # a checkpoint is complete once nothing in it changes
        if now and now != before:
            before = now
            try:
                measure()
            except (Problem, OSError) as error:
                print(f"error: {error}", file=sys.stderr, flush=True)
        elif is_last:
            return


def _files(folders: Sequence[Path]) -> Files:
    """Return the files of all checkpoints in folders."""
    from ptq_dynamics.base.checkpoints import CONFIG
    from ptq_dynamics.hub.folders import listed

    files = set[tuple[Path, "LocalFile"]]()
    # Unlike pathlib's, this `glob` lets folders vanish.
    for config in (root / name for root in folders for name in glob(f"*/{CONFIG}", root_dir=root)):
        with suppress(FileNotFoundError):  # it is being deleted
            files |= {(config.parent, file) for file in listed(config.parent, bool)}
    return frozenset(files)
