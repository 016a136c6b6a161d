"""A job's own command that saves is admitted like any other command, and no control plane can smuggle one in."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from agents.admission.reading import read_allow_list
from agents.contract.assignments import AssignedInstance, JobTerms
from agents.contract.runtimes import OwnRuntime
from agents.keeper.copies import NodeCopy
from agents.keeper.filler import Filler
from agents.runtime import Launch
from agents.runtime.process import ProcessRuntime
from agents.templates import Confined, Filled
from agents.templates.reading import read
from tests.support.patience import until

LIST = """\
user: agent
admit:
  train: {argv: ["{python}", FOLDER/train.py, "--fast"]}
  save: {argv: ["{python}", FOLDER/save.py, "{integer:1..9}"]}
"""


def filler(folder: Path) -> Filler:
    path = folder / "allow-list.yaml"
    path.write_text(LIST.replace("FOLDER", str(folder)))
    for script in ("train.py", "save.py"):
        (folder / script).touch()
    return Filler(read(), "127.0.0.1", b"key", read_allow_list(path), checkpoints=folder / "checkpoints")


def job(folder: Path, *save: str, **fields: object) -> AssignedInstance:
    runtime = OwnRuntime(command=("{python}", f"{folder}/train.py"), args=("--fast",))
    terms = JobTerms(checkpoint_command=save, **fields)  # type: ignore[arg-type]
    return AssignedInstance("tune-1", 0, "lab", job="tune", runtime=runtime, terms=terms)


def test_an_admitted_command_saves(tmp_path: Path) -> None:
    node = filler(tmp_path)
    instance = job(tmp_path, "{python}", f"{tmp_path}/save.py", "5", checkpoint_seconds=30)
    assert node.refused([instance]) == {}
    filled = node.fill(NodeCopy("tune-1.1.1", instance, "GPU-1"))
    assert filled.checkpoint_command[1:] == (f"{tmp_path}/save.py", "5")
    assert filled.checkpoint_seconds == 30


@pytest.mark.parametrize(
    "save",
    [
        ("/bin/sh", "-c", "id"),
        ("{python}", "FOLDER/save.py"),
        ("{python}", "FOLDER/save.py", "10"),
        ("{python}", "FOLDER/save.py", "5", "5"),
        ("{python}", "-c", "import os"),
    ],
)
def test_any_other_command_refuses_the_job(tmp_path: Path, save: tuple[str, ...]) -> None:
    words = [word.replace("FOLDER", str(tmp_path)) for word in save]
    reason, message = filler(tmp_path).refused([job(tmp_path, *words)])["tune-1"]
    assert (reason, message.split(":")[0]) == ("not_admitted", "checkpoint.command")


def test_a_template_takes_no_command_from_the_control_plane(tmp_path: Path) -> None:
    stub = msgspec.structs.replace(job(tmp_path, "{python}", f"{tmp_path}/save.py", "5"), runtime=None)
    stub = msgspec.structs.replace(stub, template="gpuwright-train", args={})
    assert "checkpoint.command" in filler(tmp_path).refused([stub])["tune-1"][1]


def test_a_signal_that_only_kills_is_refused(tmp_path: Path) -> None:
    assert "SIGKILL is not" in filler(tmp_path).refused([job(tmp_path, checkpoint_signal="SIGKILL")])["tune-1"][1]


CHANGED = """
import os, sys
if "LD_AUDIT" in os.environ:
    print("changed", flush=True)
    import time; time.sleep(600)
os.execve(sys.executable, [sys.executable, "-c", sys.argv[1], ""], {**os.environ, "LD_AUDIT": "x.so", "STEPS": "7"})
"""
SHOWS = "import os; print('saves with', sorted(os.environ.keys() & {'LD_AUDIT', 'STEPS', 'API_KEY'}))"


@pytest.mark.slow
def test_a_copy_that_changes_its_environment_hands_none_of_it_to_the_agents_launcher(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path / "copies", cgroups=False)
    confined = Confined(secrets={"API_KEY": "swordfish"})
    filled = Filled(
        "own", (sys.executable, "-c", CHANGED, CHANGED),
        confined=confined, checkpoint_command=(sys.executable, "-c", SHOWS),
    )  # fmt: skip
    running = runtime.start(Launch("own-1", "", filled, 0))
    try:
        until(lambda: "changed" in runtime.log_tail("own-1"), "it has replaced its environment")
        assert runtime.run_beside(running, filled, 30)
        assert "saves with ['API_KEY']" in runtime.log_tail("own-1")
    finally:
        runtime.end(running, force=True)
        until(lambda: runtime.find() == (), "it has ended")
        runtime.tidy(())
