"""Jobs that no figure of scale smoke has, traced: what they enter is in their fingerprints."""

import pytest
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.train.settings import DropSettings
from support import copy_results, edit_yaml, plan, tiny_config
from tracer import trace

pytestmark = pytest.mark.slow

NF4 = {"method": "nf4", "bits": 4, "block_size": 32, "double_quantization": True}


@pytest.fixture
def here(workspace, trunk, tmp_path):
    """A folder with the trunk."""
    jobs = [workspace.plan.corpora.corpus("main"), workspace.plan.trajectories.train("trunk")]
    copy_results(workspace.folder, tmp_path, [job.folder for job in jobs])
    return tmp_path


def test_nf4(here, tmp_path_factory):
    config = tiny_config(tmp_path_factory.mktemp("nf4"))
    edit_yaml(config / "quantizers.yaml", lambda found: found.update(nf=NF4))
    job = plan("smoke", config).quantization.quantize("trunk", "nf")
    assert job.stage == "quantize.nf4"
    assert "run" in trace(job, here, {})


def test_drop(here, workspace):
    trunk = workspace.plan.trajectories.train("trunk")
    folder = "results/smoke/drop/trunk"
    settings = DropSettings((), f"{folder}/manifest.json")
    job = Job("train.drop", "trunk", folder, {"result": [trunk.manifest]}, settings)
    assert "run" in trace(job, here, {})
