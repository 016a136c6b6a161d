"""Jobs that people bring: killed at random moments they lose nothing, and their exit codes and saves are followed."""

from __future__ import annotations

import json
import random
import time
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from agents.contract.assignments import JobTerms
from agents.contract.logs import LogWanted
from agents.contract.reports import InstanceMinute
from agents.keeper.copies import NodeCopy, Stage
from agents.node.node import LocalNode
from tests.support.needs import skip_in_ci_too
from tests.support.nodes import Machine, assigned, copy_of, kill, ready
from tests.support.patience import until
from tests.support.soak import scaled
from tests.support.trainers import (
    EXAMPLES,
    TRAINER,
    agent_on,
    files_of,
    program,
    straight_run,
    trainer,
    training_node,
)

KILLS = scaled(20, 4)
STEPS = 6_000
PAUSE_SECONDS = scaled(4, 1) / 1000
COUNTING = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(os.environ["GPUWRIGHT_CHECKPOINTS"])
progress = pathlib.Path(os.environ["GPUWRIGHT_PROGRESS"])
def note(name): (folder / name).open("a").write("x")
note("starts")
"""


def held(node: LocalNode) -> dict[str, str]:
    return {held.instance: held.missing.reason for held in node.keeper.held}


def reported(node: LocalNode) -> InstanceMinute:
    """The job as the node reports it now."""
    (line,) = node.report_body(*node.current_minute()).instances
    return line


def kill_at_random(made: Machine, node: LocalNode, kills: int, rng: random.Random) -> None:
    """Kills the process of the job again and again, each time that it has come further."""
    for _ in range(kills):
        until(lambda: ready(node, "tune-1"), "it runs")
        copy = copy_of(node, "tune-1")
        assert copy.running is not None
        files = files_of(made, copy.wanted)
        until(lambda files=files: files.read() is not None, "it reports")  # type: ignore[misc]
        time.sleep(rng.uniform(0, 0.15))
        kill(copy.running.pid)
        until(lambda gone=copy.id: gone not in [other.id for other in node.keeper.copies()], "it is gone")  # type: ignore[misc]


def train_under_kills(script: str, folder: Path, steps: int, pause: float) -> Path:
    """Returns the folder of the job's last save, after its process and its agent were killed and it has ended."""
    job = trainer(steps, args={"steps": steps, "save": 0.05, "pause": pause})
    with training_node(folder, TRAINER % (EXAMPLES / script)) as made:
        rng = random.Random(5)
        with agent_on(made) as node:
            node.offer(assigned(1, job))
            kill_at_random(made, node, KILLS // 2, rng)
        with agent_on(made, 2) as node:
            node.offer(assigned(1, job))
            kill_at_random(made, node, KILLS - KILLS // 2, rng)
            quick = msgspec.structs.replace(job, args={"steps": steps, "save": 0.5})
            node.offer(assigned(2))
            until(lambda: not node.keeper.copies(), "it was preempted")
            node.offer(assigned(3, quick))
            until(lambda: held(node).get("tune-1") == "job_done", "it has done all its steps")
            assert node.keeper.exit_code("tune-1") == 0
        return files_of(made, job).folder


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_training_job_killed_at_random_moments_ends_with_the_weights_of_an_uninterrupted_run(tmp_path: Path) -> None:
    found = train_under_kills("plain.py", tmp_path, STEPS, PAUSE_SECONDS)
    straight = straight_run("plain.py", STEPS, tmp_path / "straight")
    assert json.loads((found / "last.json").read_text()) == json.loads((straight / "last.json").read_text())


def need_torch() -> None:
    if find_spec("torch") is None:
        skip_in_ci_too("PyTorch is not installed (pip install torch)")


@pytest.mark.timeout(3600)
def test_a_pytorch_training_killed_at_random_moments_ends_with_the_same_weights(tmp_path: Path) -> None:
    need_torch()
    import torch  # type: ignore[import-not-found,unused-ignore]

    found = train_under_kills("train.py", tmp_path, 3_000, PAUSE_SECONDS)
    straight = straight_run("train.py", 3_000, tmp_path / "straight")
    mine, theirs = (torch.load(folder / "last.pt", weights_only=True) for folder in (found, straight))
    assert mine["step"] == theirs["step"] == 3_000
    assert all(torch.equal(mine["model"][name], theirs["model"][name]) for name in theirs["model"])


@pytest.mark.slow
@pytest.mark.parametrize("script", ["plain.py", "train.py"])
def test_a_training_waits_in_host_memory_and_goes_on_as_the_same_process(tmp_path: Path, script: str) -> None:
    if script == "train.py":
        need_torch()
    steps = 10**6
    job = trainer(steps, args={"steps": steps, "pause": 0.01}, terms=JobTerms(units=steps, swaps=True))
    with training_node(tmp_path, TRAINER % (EXAMPLES / script)) as made, agent_on(made) as node:
        node.offer(assigned(1, job))
        until(lambda: ready(node, "tune-1") and reported(node).steps > 10, "it trains")
        process = copy_of(node, "tune-1").running
        node.offer(assigned(2, swapped=(job,)))
        until(lambda: copy_of(node, "tune-1").stage is Stage.SWAPPED, "it waits in host memory")
        written = files_of(made, job).read()
        assert written is not None
        assert written.saved == written.units >= 10
        node.offer(assigned(3, job))
        until(lambda: ready(node, "tune-1") and reported(node).steps > written.units, "it has gone on")
        assert copy_of(node, "tune-1").running == process


@pytest.mark.slow
def test_progress_and_what_is_unsaved_are_reported(tmp_path: Path) -> None:
    text = COUNTING + "progress.write_text(json.dumps({'units': 70, 'saved': 40})); time.sleep(600)"
    with training_node(tmp_path, program(tmp_path, text)) as made, agent_on(made) as node:
        node.offer(assigned(1, trainer(100, args=None)))
        until(lambda: ready(node, "tune-1") and reported(node).steps == 70, "its file is read")
        assert reported(node).saved_steps == 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("progress.symlink_to('/etc/hostname')", "a link to another file"),
        ("progress.write_text('x' * 1000000)", "no JSON"),
        ("progress.write_text('{\"units\": NaN}')", "no number"),
        ("progress.write_text('{\"units\": -5}')", "less than nothing"),
        ("os.mkfifo(progress)", "a pipe that blocks"),
    ],
)
def test_a_lying_file_of_progress_is_no_progress(tmp_path: Path, text: str, why: str) -> None:
    body = COUNTING + text + "\nnote('written'); time.sleep(600)"
    with training_node(tmp_path, program(tmp_path, body)) as made, agent_on(made) as node:
        job = trainer(100, args=None)
        node.offer(assigned(1, job))
        until(lambda: ready(node, "tune-1") and (files_of(made, job).folder / "written").exists(), why)
        node.watch.tick()
        assert reported(node).steps == 0, why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "reason"), [(0, "job_done"), (7, "job_done"), (9, "job_failed"), (1, "exited"), (-9, "exited")]
)
def test_exit_codes_say_whether_a_job_is_done_has_failed_or_is_started_again(
    tmp_path: Path, code: int, reason: str
) -> None:
    end = f"sys.exit({code})" if code >= 0 else f"os.kill(os.getpid(), {-code})"
    terms = JobTerms(units=0, done_codes=(0, 7), failed_codes=(9,))
    job = trainer(1, args=None, terms=terms)
    with training_node(tmp_path, program(tmp_path, COUNTING + end)) as made:
        starts = files_of(made, job).folder / "starts"
        with agent_on(made) as node:
            node.offer(assigned(1, job))
            until(lambda: held(node).get("tune-1") == reason, "it was judged")
            assert node.keeper.exit_code("tune-1") == (code if code >= 0 else 128 - code)
        if reason == "exited":
            return
        with agent_on(made, 2) as node:
            node.offer(assigned(1, job))
            until(lambda: held(node).get("tune-1") == reason, "the next agent knows it, too")
        assert starts.read_text() == "x", "a job that is over is not started again"


@pytest.mark.slow
def test_a_job_that_ends_short_of_its_steps_is_done_only_once_it_ends_there_twice(tmp_path: Path) -> None:
    text = COUNTING + "progress.write_text(json.dumps({'units': 60, 'saved': 60})); sys.exit(0)"
    with training_node(tmp_path, program(tmp_path, text)) as made, agent_on(made) as node:
        job = trainer(100, args=None)
        node.offer(assigned(1, job))
        until(lambda: held(node).get("tune-1") == "job_done", "it stops early, and means it")
        assert (files_of(made, job).folder / "starts").read_text() == "xx"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["signal", "command"])
def test_a_job_saves_once_before_it_is_stopped(tmp_path: Path, how: str) -> None:
    text = COUNTING + (
        "def saves(*_): note('saves'); time.sleep(0.5); note('saved')\n"
        "signal.signal(signal.SIGUSR1, saves)\n"
        "signal.signal(signal.SIGTERM, lambda *_: (note('asked'), sys.exit(0)))\n"
        "note('up')\nwhile True: time.sleep(0.1)"
    )
    saver = tmp_path / "save.py"
    saver.write_text(
        "import os, pathlib; (pathlib.Path(os.environ['GPUWRIGHT_CHECKPOINTS']) / 'saves').write_text('x')"
    )
    template = f"checkpointCommand: ['{{python}}', {saver}]\ncheckpointSeconds: 20" if how == "command" else ""
    terms = JobTerms() if how == "command" else JobTerms(checkpoint_signal="SIGUSR1", checkpoint_seconds=1.5)
    job = trainer(1, args=None, terms=terms)
    with training_node(tmp_path, program(tmp_path, text, template)) as made, agent_on(made) as node:
        folder = files_of(made, job).folder
        node.offer(assigned(1, job))
        until(lambda: ready(node, "tune-1") and (folder / "up").exists(), "it runs")
        node.offer(assigned(2))
        until(lambda: not node.keeper.copies(), "it has ended")
        assert (folder / "saves").read_text() == "x", "it is asked to save once: a handler is not interrupted"
        assert (folder / "asked").read_text() == "x"
        if how == "signal":
            assert (folder / "saved").read_text() == "x"


@pytest.mark.slow
def test_what_a_job_prints_is_read_from_one_process_to_the_next_and_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = COUNTING + "n = len((folder / 'starts').read_text()); print(f'run {n}'); sys.exit(1 if n < 3 else 0)"
    with training_node(tmp_path, program(tmp_path, text)) as made, agent_on(made) as node:
        record = node.keeper._ledger.record

        def tidied(copy: NodeCopy) -> None:
            record(copy)
            node.keeper._steps._tidy()  # which may happen at any moment

        monkeypatch.setattr(node.keeper._ledger, "record", tidied)
        node.offer(assigned(1, trainer(1, args=None, terms=JobTerms())))
        until(lambda: held(node).get("tune-1") == "job_done", "its third process is done")
        until(lambda: not node.keeper.copies(), "the last process is gone")
        last = node.read_printed(LogWanted("a", "tune-1"))
        assert last.text == "run 1\nrun 2\nrun 3\n"
        first = f"{node.keeper.list_logged_copies('tune-1')[0]}@0"
        read = []
        for _ in range(3):
            found = node.read_printed(LogWanted("b", "tune-1", first))
            read.append(found.text)
            first = found.ends
        assert read == ["run 1\n", "run 2\n", "run 3\n"]
        assert node.read_printed(LogWanted("c", "tune-1", first)).text == ""
