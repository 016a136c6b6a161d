"""Large inputs are read in another process, which may be slow, greedy or killed without harm to this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.manifests.faults import ManifestsRefused
from app.manifests.parsing import WAITING, ParserPool
from app.manifests.reader import API, InputLimits
from app.worker.places import WorkersBusy
from tests.app.manifests import bad
from tests.support.patience import patience, until

pytestmark = pytest.mark.slow

MANY = "---\n".join(bad.service().replace("{name: x}", f"{{name: s{n}}}") for n in range(800)).encode()
SLOW = b"\n".join(b"k%d: {}" % n for n in range(240_000))  # seconds of reading, in few bytes


@pytest.fixture
def pool() -> Iterator[ParserPool]:
    pool = ParserPool(seconds=60)
    yield pool
    pool.close()


def workers(parent: int = 0) -> list[int]:
    """Process ids of the living workers of a parent: this process, unless told."""
    return [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if is_worker(folder) and parent_of(folder) == (parent or os.getpid())
    ]


def is_worker(folder: Path) -> bool:
    try:
        return b"app.manifests.parser_process" in (folder / "cmdline").read_bytes()
    except OSError:
        return False


def parent_of(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def wait_until_gone(pid: int) -> None:
    until(lambda: not is_worker(Path(f"/proc/{pid}")), f"{pid} is still there")


def test_a_large_input_reads_the_same_as_a_small_one(pool: ParserPool) -> None:
    here = ParserPool(small_bytes=API.max_bytes, seconds=20.0)
    assert len(MANY) > pool.small_bytes
    assert pool.parse(MANY, "yaml", API, "f", "shop") == here.parse(MANY, "yaml", API, "f", "shop")
    assert len(workers()) == 1


def test_faults_and_refusals_come_back_whole(pool: ParserPool) -> None:
    wrong = MANY + b"---\n" + bad.service(priority="0").encode()
    manifests, (fault,), at_fault, (sketch,) = pool.parse(wrong, "yaml", API, "f")
    assert len(manifests) == 800
    assert fault.field == "spec.priority"
    assert "model" in sketch.spec and "priority" not in sketch.spec
    assert at_fault is not None and {key.name for key in at_fault} == {fault.document.rpartition("/")[2]}
    with pytest.raises(ManifestsRefused) as refused:
        pool.parse(MANY + b"---\na: [", "yaml", API, "f")
    assert refused.value.faults[0].document.startswith("f:")
    with pytest.raises(ManifestsRefused) as refused:
        pool.parse(MANY, "yaml", InputLimits(API.max_bytes, 100))
    assert refused.value.too_large


def test_a_worker_is_kept_for_the_next_input(pool: ParserPool) -> None:
    pool.parse(MANY, "yaml", API)
    (first,) = workers()
    pool.parse(MANY, "yaml", API)
    assert workers() == [first]
    assert os.getpriority(os.PRIO_PROCESS, first) >= 10


def test_a_worker_knows_no_secret_and_holds_no_socket(pool: ParserPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://canary")
    pool.parse(MANY, "yaml", API)
    (worker,) = workers()
    assert "canary" not in Path(f"/proc/{worker}/environ").read_text()
    targets = [str(entry.readlink()) for entry in Path(f"/proc/{worker}/fd").iterdir()]
    assert [target for target in targets if target.startswith("socket:")] == []


def test_a_worker_that_was_killed_is_replaced(pool: ParserPool) -> None:
    pool.parse(MANY, "yaml", API)
    (worker,) = workers()
    os.kill(worker, signal.SIGKILL)
    wait_until_gone(worker)
    manifests, _, _, _ = pool.parse(MANY, "yaml", API)
    assert len(manifests) == 800


def test_an_input_that_takes_too_long_is_refused_and_its_worker_gone() -> None:
    pool = ParserPool(seconds=0.3)
    with pytest.raises(ManifestsRefused, match=r"within 0\.3 seconds") as refused:
        pool.parse(SLOW, "yaml", API, "f")
    assert refused.value.too_large
    assert workers() == []


def test_an_input_that_takes_too_much_memory_is_refused() -> None:
    pool = ParserPool(seconds=60, memory_mb=250)
    text = b"a: " + b"x" * (60 * 1024**2)
    with pytest.raises(ManifestsRefused, match="more than 250 MB of memory") as refused:
        pool.parse(text, "yaml", InputLimits(64 * 1024**2, 1000))
    assert refused.value.too_large
    assert workers() == []


def test_when_all_workers_are_busy_the_rest_is_told_to_come_back() -> None:
    pool = ParserPool(seconds=3, workers=1)
    outcomes: list[BaseException] = []

    def ask() -> None:
        try:
            pool.parse(SLOW, "yaml", API)
        except (ManifestsRefused, WorkersBusy) as error:
            outcomes.append(error)

    threads = [threading.Thread(target=ask) for _ in range(1 + WAITING)]
    for thread in threads:
        thread.start()
    until(workers, "a worker started")
    began = time.monotonic()
    with pytest.raises(WorkersBusy):
        while time.monotonic() - began < patience():
            pool.parse(SLOW, "yaml", API)
    pool.close()
    for thread in threads:
        thread.join(patience())
    assert not any(thread.is_alive() for thread in threads)
    assert workers() == []


def test_no_worker_outlives_a_parent_that_was_killed() -> None:
    script = (
        "from app.manifests.parsing import ParserPool\nfrom app.manifests.reader import API\nimport sys, time\n"
        "pool = ParserPool(seconds=60)\npool.parse(sys.stdin.buffer.read(), 'yaml', API)\nprint('read', flush=True)\n"
        "time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(MANY)
    parent.stdin.close()
    assert parent.stdout.readline() == b"read\n"
    (worker,) = workers(parent.pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until_gone(worker)
