"""`ptq-dynamics measure`: write a project for own checkpoints, and build it."""

from contextlib import chdir
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ptq_dynamics.cli import chosen
from ptq_dynamics.cli.options import SEVERAL, words

Number = int | None
Text = str | None
Words = list[str] | None


def measure(
    places: Annotated[
        list[str],
        Argument(help="folder of checkpoints, one checkpoint, or OWNER/NAME; of each run"),
    ],
    names: Annotated[
        Words, Option(help=f"of runs on the page; {SEVERAL}; default: folders")
    ] = None,
    revisions: Annotated[Text, Option(help="branches of OWNER/NAME, as 'step*'")] = None,
    step: Annotated[Text, Option(help=r"names of folders; a group is the step: 's-(\d+)'")] = None,
    methods: Annotated[Words, Option(help=f"gptq rtn awq int8; {SEVERAL}; default: gptq")] = None,
    bits: Annotated[Words, Option(help=f"from 2 to 8; {SEVERAL}; default: '4 3'")] = None,
    average: Annotated[Number, Option(help="checkpoints in each average; default: 5")] = None,
    curvature: Annotated[bool, Option("--curvature", help="also sharpness, and trace")] = False,
    tasks: Annotated[Words, Option(help=f"of config/tasks.yaml, for accuracy; {SEVERAL}")] = None,
    text: Annotated[Text, Option(help="file, folder or data set; default: docstrings")] = None,
    tokens: Annotated[Number, Option(help="validation tokens; default: 32768")] = None,
    context: Annotated[Number, Option(min=2, help="tokens in a block; default: 512")] = None,
    batch: Annotated[Number, Option(min=1, help="blocks in memory at once; default: 4")] = None,
    tokens_per_step: Annotated[float | None, Option(help="tokens in a step of the run")] = None,
    lr: Annotated[Text, Option(help="CSV file with step and lr, a rate, or trainer_state")] = None,
    every: Annotated[Number, Option(help="measure one checkpoint in so many")] = None,
    last: Annotated[Number, Option(help="measure so many checkpoints at the end")] = None,
    skip: Annotated[bool, Option("--skip", help="leave out matrices that methods refuse")] = False,
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

    Example: ptq-dynamics measure ~/runs/mine --last 4"""
    from ptq_dynamics.cli import own, project, watching
    from ptq_dynamics.cli.places import claimed, names_of

    workflow_profile, runs = chosen.profile(profile), names_of(places, words(names))
    metrics = ["sharpness", "hessian_trace"] * curvature + ["accuracy"] * bool(tasks)
    asked = words(methods), words(bits), words(tasks)
    source = text or (f"scale {scale}" if scale else "docstrings")

    def once() -> None:
        with claimed(out, places, runs) as root:
            options = {"rate": project.rate(root, lr), "tokens_per_step": tokens_per_step}
            options |= {"every": every, "last": last, "skip": skip}
            given = {key: value for key, value in options.items() if value is not None}
            keys = zip(project.keys(runs), places, strict=True)
            entries = [project.checkpoints(root, *of, revisions, step) | given for of in keys]
            settings = project.scale(
                root,
                scale,
                text,
                tokens,
                asked[2],
                curvature=curvature,
                context=context,
                batch=batch,
                keep=keep,
            )
            project.write(
                root,
                dict(zip(runs, entries, strict=True)),
                project.quantizers(*asked[:2]),
                settings,
                average=average,
                metrics=metrics,
                seed=seed,
                grows=watch,
            )
            with chdir(root):
                files = own.measure(workflow_profile, source, jobs)
            print("written:", ", ".join(str(root / file) for file in files), flush=True)

    if watch:
        watching.watch([Path(place) for place in places], once, piped=piped)
    else:
        once()
    return True
