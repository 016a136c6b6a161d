"""gpuwright-train as a process: it steps, saves, ends and resumes."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.runtime import proc
from agents.talk.scraping import read_served
from tests.support.patience import patience, until

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def starting(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "agents.programs.train.main", *arguments]
        started.append(
            subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield starting
    for process in started:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def saved(path: Path) -> int:
    return int(json.loads(path.read_text())["steps"]) if path.exists() else 0


def save_more(process: subprocess.Popen[str], path: Path) -> None:
    """Repeats the request until there was a step to save."""
    before = saved(path)

    def has_saved() -> bool:
        process.send_signal(signal.SIGUSR1)
        return saved(path) > before

    until(has_saved, "it saves")


def page(port: str, name: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=patience()) as answer:
        output: bytes = answer.read()
    return output


def metrics(port: str) -> dict[str, float]:
    lines = page(port, "metrics").decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if not line.startswith("#")}


def test_a_job_saves_on_its_signal_and_continues(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    process = start("--speeds=100:200", f"--checkpoint={path}", "--checkpoint-seconds=3600")
    first_line(process)
    for _ in range(3):
        save_more(process, path)
    assert process.poll() is None


@pytest.mark.slow
def test_a_job_that_is_asked_to_end_saves_exits_and_later_continues(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    arguments = ("--speeds=100:200", f"--checkpoint={path}", "--checkpoint-seconds=3600")
    process = start(*arguments)
    assert first_line(process).startswith("step 0 ")
    save_more(process, path)
    process.terminate()
    output, _ = process.communicate(timeout=patience())
    assert process.returncode == 0
    assert output.strip() == f"ended at step {saved(path)}, saved {saved(path)}"
    assert first_line(start(*arguments)).startswith(f"step {saved(path)} ")


@pytest.mark.slow
def test_a_job_that_is_killed_loses_no_more_than_since_its_last_save(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    arguments = ("--speeds=100:200", f"--checkpoint={path}", "--checkpoint-seconds=0.1", "--port=0")
    done = 0
    for _ in range(4):
        process = start(*arguments)
        begun, port = re.findall(r"step (\d+) .* port (\d+)", first_line(process))[0]
        assert int(begun) == saved(path) >= done
        until(lambda port=port, begun=begun: metrics(port)["gpuwright_train_saved_steps"] > int(begun) + 10)  # type: ignore[misc]
        done = int(metrics(port)["gpuwright_train_saved_steps"])
        process.kill()
        process.wait(patience())
        assert saved(path) >= done


def test_a_job_that_has_made_its_steps_ends(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    process = start("--speeds=100:500", "--steps=100", f"--checkpoint={path}")
    process.communicate(timeout=patience())
    assert process.returncode == 0
    assert saved(path) == 100


def test_it_says_that_it_is_well_and_how_far_it_is(start: Start) -> None:
    process = start("--speeds=100:100", "--port=0")
    port = first_line(process).split()[-1]
    assert urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=patience()).status == 200
    before = metrics(port)["gpuwright_train_steps_total"]
    until(lambda: metrics(port)["gpuwright_train_steps_total"] > before)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/anything", timeout=patience())


def test_a_damaged_checkpoint_keeps_the_job_from_starting(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text("{")
    process = start(f"--checkpoint={path}")
    _, output = process.communicate(timeout=patience())
    assert process.returncode == 1
    assert "cannot read checkpoint" in output
    assert path.read_text() == "{"


def test_arguments_that_make_no_sense_are_refused(start: Start) -> None:
    process = start("--speeds=0:5")
    _, output = process.communicate(timeout=patience())
    assert process.returncode == 2
    assert "--speeds" in output


def test_under_mps_it_steps_by_its_share_holds_its_memory_and_says_what_it_sees(start: Start, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(tmp_path / "device.sock"))
        daemon.listen()
        limits = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2048M"}
        environment = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path), "CUDA_VISIBLE_DEVICES": "GPU-7"}
        process = start("--speeds=10:10,50:50", "--memory-gib=1.5", "--port=0", **limits, **environment)
        client, _ = daemon.accept()
        with client, client.makefile("rw") as words:
            hello = json.loads(words.readline())
            expected = {"pid": process.pid, "uuid": "GPU-7", "smPercent": 30, "memoryLimitGib": 2.0, "memoryGib": 1.5}
            assert hello == expected
            print('{"smCount": 24}', file=words, flush=True)
            output = first_line(process)
            assert output.startswith("step 0 at 30 % of the SMs")
            served = read_served("gpuwright", page(output.split()[-1], "metrics"))
            assert served is not None
            assert (served.sm_count, served.memory_gib) == (24, 1.5)
            assert json.loads(words.readline()) == {"busy": 1.0}
            print('{"error": 810, "message": "terminated"}', file=words, flush=True)
            process.communicate(timeout=patience())
    assert process.returncode == 1


def is_stopped(process: subprocess.Popen[str]) -> bool:
    found = proc.read_process(process.pid)
    return found is not None and found.stopped


def test_a_job_that_is_to_wait_saves_stops_and_goes_on_without_catching_up(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    process = start("--speeds=100:200", f"--checkpoint={path}", "--checkpoint-seconds=3600", "--port=0")
    port = first_line(process).split()[-1]
    for _ in range(2):
        until(lambda: metrics(port)["gpuwright_train_steps_total"] > saved(path) + 10, "it steps")
        process.send_signal(signal.SIGTSTP)
        until(lambda: is_stopped(process), "it has stopped itself")
        kept = saved(path)
        assert kept > 10
        process.send_signal(signal.SIGCONT)
        until(lambda: not is_stopped(process), "it goes on")
        assert metrics(port)["gpuwright_train_steps_total"] >= kept
    process.terminate()
    process.communicate(timeout=patience())
    assert process.returncode == 0


@pytest.mark.parametrize("there_is_room", [True, False])
def test_a_job_that_waits_holds_no_memory_and_takes_it_back_or_ends(
    start: Start, tmp_path: Path, there_is_room: bool
) -> None:
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(tmp_path / "device.sock"))
        daemon.listen()
        environment = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path), "CUDA_VISIBLE_DEVICES": "GPU-7"}
        process = start("--memory-gib=1.5", **environment)
        client, _ = daemon.accept()
        with client, client.makefile("rw") as words:
            words.readline()
            print('{"smCount": 80}', file=words, flush=True)
            first_line(process)
            process.send_signal(signal.SIGTSTP)
            heard: list[dict[str, float]] = []
            while heard[-2:] != [{"busy": 0.0}, {"memoryGib": 0.0}]:
                heard.append(json.loads(words.readline()))
                print("{}", file=words, flush=True)
            until(lambda: is_stopped(process), "it has stopped itself")
            process.send_signal(signal.SIGCONT)
            assert json.loads(words.readline()) == {"memoryGib": 1.5}
            if there_is_room:
                print("{}", file=words, flush=True)
                assert json.loads(words.readline()) == {"busy": 1.0}
            else:
                print('{"error": 2, "message": "out of memory"}', file=words, flush=True)
                _, output = process.communicate(timeout=patience())
                assert process.returncode == 1
                assert "out of memory" in output


def test_a_job_that_gets_no_memory_says_so_and_does_not_run(start: Start, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(tmp_path / "device.sock"))
        daemon.listen()
        process = start("--memory-gib=99", CUDA_MPS_PIPE_DIRECTORY=str(tmp_path), CUDA_VISIBLE_DEVICES="GPU-7")
        client, _ = daemon.accept()
        with client, client.makefile("rw") as words:
            words.readline()
            print('{"error": 2, "message": "out of memory"}', file=words, flush=True)
            _, output = process.communicate(timeout=patience())
    assert process.returncode == 1
    assert "out of memory" in output
