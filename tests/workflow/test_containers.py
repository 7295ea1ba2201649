"""The images: built and run where a builder answers, and else checked for their form alone."""

import os
import re
import shutil
from subprocess import DEVNULL, CompletedProcess, run

import pytest
import yaml
from project import SHOWN, SNAKEMAKE
from ptq_dynamics.graph.resources import COMPUTING
from support import ROOT

FOLDER = ROOT / "containers"
DOCKERFILE, DEFINITION = FOLDER / "Dockerfile", FOLDER / "ptq-dynamics.def"
INSTALL = FOLDER / "install.sh"
IMAGE = "ptq-dynamics-test"
HOME = "/opt/ptq-dynamics"
# How a builder is asked whether it can build.
BUILDERS = {
    "docker": ("docker", "info"),
    "podman": ("podman", "info"),
    "apptainer": ("apptainer", "version"),
}
# CONTAINERS=form makes no images, which takes a network, some 15 minutes and 10 GB.
WANTED = os.environ.get("CONTAINERS", "build") == "build"


def answering() -> list[str]:
    """The builders that can build here."""
    return [
        name
        for name, (program, verb) in BUILDERS.items()
        if shutil.which(program)
        and run([program, verb], stdout=DEVNULL, stderr=DEVNULL, check=False).returncode == 0
    ]


FOUND = answering() if WANTED else []


def test_which_images_are_built_is_said():
    untested = sorted(
        {"docker", "apptainer"} - {name.replace("podman", "docker") for name in FOUND}
    )
    for kind in untested:
        print(f"{SHOWN}UNTESTED: no builder answers here for the {kind} image; its form is checked")
    for name in FOUND:
        print(f"{SHOWN}the image of {name} is built and run")


# Form


def sections(text: str) -> dict[str, list[str]]:
    """The sections of an Apptainer definition, each with its lines."""
    parts = re.split(r"^%(\w+)\n", text, flags=re.M)[1:]
    return {
        name: [line.strip() for line in body.splitlines() if line.strip()]
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, with what follows them."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    joined = lines.replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def mounted(said: str) -> dict[str, str]:
    """What a RUN mounts, by its target."""
    found = re.findall(r"--mount=type=bind,source=(\S+?),target=(\S+)", said)
    return {target: source for source, target in found}


def tracked() -> set[str]:
    done = run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def test_both_images_begin_alike_and_install_the_same():
    docker = instructions(DOCKERFILE.read_text())
    assert [word for word, _ in docker] == ["FROM", "RUN", "WORKDIR", "CMD"]
    (_, base), (_, ran), (_, where), _ = docker
    definition = DEFINITION.read_text()
    apptainer = sections(definition)
    head = dict(re.findall(r"^(\w+): (.+)$", definition.partition("%")[0], re.M))
    assert head == {"Bootstrap": "docker", "From": base}
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+|\S+@sha256:[0-9a-f]{64}", base), base
    files = {target: source for source, target in map(str.split, apptainer["files"])}
    assert mounted(ran) == files
    assert re.sub(r"--mount=\S+", "", ran).split() == ["sh", "/tmp/install.sh"]
    assert apptainer["post"][0] == "sh /tmp/install.sh"
    assert files["/tmp/install.sh"] == str(INSTALL.relative_to(ROOT))
    assert where == HOME and apptainer["runscript"][0] == f"cd {HOME}"
    # All others come with the commit.
    assert set(files.values()) == {".git", "containers/install.sh"}


def test_what_they_copy_is_there_and_tracked_and_what_docker_is_given():
    known = tracked()
    for name in ("containers/install.sh", "containers/Dockerfile", "containers/ptq-dynamics.def"):
        assert name in known and (ROOT / name).is_file()
    given = (ROOT / ".dockerignore").read_text().split()
    assert given == ["*", "!.git", "!containers/install.sh"]
    assert (ROOT / ".git").exists()


def test_they_install_every_environment_that_is_locked():
    said = INSTALL.read_text()
    assert run(["sh", "-n", str(INSTALL)], check=False).returncode == 0
    # What a build on a cluster needs is installed for that; an image has no commands of SLURM. Nor
    # is uv for builds. What a GPU needs is part of each environment.
    tools = {path.stem for path in (ROOT / "envs").glob("*.txt")} - {"main", "cuda", "slurm", "uv"}
    assert set(re.findall(r"envs/(\w+)/manifest\.json", said)) == tools == {"gptqmodel", "autogptq"}
    # The main environment is what every other target of the Makefile installs.
    assert "\nmake install\n" in said
    plan = run(["make", "-n", "-W", "pyproject.toml", "-B", "install"], **options(ROOT))
    assert "envs/install.py envs/main.txt ." in plan.stdout, plan.stderr
    # The same minor version as the locks were made with.
    minor = re.search(r"python:(3\.\d+)\.", DOCKERFILE.read_text())[1]
    assert f"python={minor}" in (ROOT / "envs/main.yaml").read_text()
    for tool in tools:
        assert f"\n# python: {minor}\n" in (ROOT / f"envs/{tool}.txt").read_text()


def test_those_environments_are_what_a_build_of_the_backends_takes():
    manifests = re.findall(r"envs/\w+/manifest\.json", INSTALL.read_text())
    command = [SNAKEMAKE, "-n", "--quiet", "host", "--config", "scale=smoke", "--", *manifests]
    done = run(command, **options(ROOT))
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert "rule environment:" in said or "Nothing to be done" in said


def test_a_clone_of_what_is_copied_has_what_the_default_command_needs(tmp_path):
    """As the images clone it. The default command lists what there is."""
    for image, words in ((DOCKERFILE, 'CMD ["make"]'), (DEFINITION, 'exec "${@:-make}"')):
        assert words in image.read_text()
    clone = ["git", "clone", "-q", "--no-hardlinks", str(ROOT / ".git"), str(tmp_path / "clone")]
    done = run(clone, **options(tmp_path))
    assert done.returncode == 0, done.stderr
    script = tmp_path / "run.sh"
    lines = sections(DEFINITION.read_text())["runscript"]
    script.write_text("\n".join(lines).replace(HOME, str(tmp_path / "clone")))
    said = run(["sh", str(script)], **options(tmp_path))
    assert said.returncode == 0 and "make figures" in said.stdout, said.stderr
    told = run(["sh", str(script), "printf", "%s|", "a b", "c"], **options(tmp_path))
    assert told.stdout == "a b|c|", "arguments are passed on as they are"


def options(folder):
    return {"cwd": folder, "capture_output": True, "text": True, "check": False}


# Built and run


def in_image(builder: str, folder, *command: str) -> CompletedProcess[str]:
    if builder == "apptainer":
        image = str(folder / "image.sif")
        return run(["apptainer", "run", "--writable-tmpfs", image, *command], **options(folder))
    return run([builder, "run", "--rm", IMAGE, *command], **options(folder))


@pytest.mark.parametrize("builder", FOUND)
def test_an_image_is_built_and_makes_a_figure(builder, tmp_path):
    if builder == "apptainer":
        command = ["apptainer", "build", str(tmp_path / "image.sif"), str(DEFINITION)]
    else:
        command = [builder, "build", "-f", str(DOCKERFILE), "-t", IMAGE, "."]
    done = run(command, **options(ROOT))
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    said = in_image(builder, tmp_path)
    assert said.returncode == 0 and "make figures" in said.stdout, said.stderr
    made = in_image(builder, tmp_path, "make", "figures", "SCALE=smoke", "FIGURES=fig06")
    assert made.returncode == 0 and "results are fresh" in made.stdout, made.stderr[-3000:]
    # Both tools are installed already.
    tools = ("gptqmodel", "autogptq")
    there = in_image(builder, tmp_path, "ls", *(f"envs/{tool}/manifest.json" for tool in tools))
    assert there.returncode == 0, there.stderr


# HTCondor


def test_the_profile_of_htcondor_asks_for_a_gpu_where_jobs_compute_on_one():
    """Its plugin is not among the locked packages, and no pool is here: it is planned without."""
    file = ROOT / "profiles/htcondor/config.yaml"
    print(f"{SHOWN}UNTESTED: no HTCondor pool is here; its profile is planned alone")
    assert "UNTESTED" in file.read_text()
    profile = yaml.safe_load(file.read_text())
    assert profile["executor"] == "htcondor"
    assert {rule for rule, asked in profile["set-resources"].items() if asked["request_gpus"]} == (
        COMPUTING - {"average", "components"}
    )
    planned = ["--profile", str(file.parent), "--executor", "local", "-n", "--quiet", "host"]
    target = "results/smoke/train/constant-3e-3/seed-7/manifest.json"
    command = [SNAKEMAKE, *planned, "--config", "scale=smoke", "seed=7", "--", target]
    done = run(command, **options(ROOT))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    _, _, train = said.partition("rule train:")
    resources = re.search(r"resources: (.+)", train)[1].split(", ")
    assert {"request_memory=64GB", "request_disk=100GB", "request_gpus=1"} <= set(resources)
