"""Workers report what one process would, and nothing is left out when one of them dies, hangs or is interrupted."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.patience import until
from tests.support.small_suite import finish_run, start_run

pytestmark = pytest.mark.slow

EASY = """
import warnings, pytest

def test_passes(tmp_path): warnings.warn("careful")

@pytest.mark.parametrize("number", [1, 2])
def test_fails_for_2(number): assert number != 2

def test_skips(): pytest.skip("no such thing")

@pytest.mark.xfail(strict=True)
def test_fails_as_expected(): assert False

def test_cannot_begin(missing): pass
"""


def summary(printed: str) -> str:
    return re.sub(r" in [\d.]+s.*", "", printed.splitlines()[-1]).strip("= ")


def outcomes(report: Path) -> list[tuple[str, str, list[str]]]:
    """Every test of a junit report, with its outcome."""
    cases = ElementTree.parse(report).iter("testcase")
    return sorted((case.attrib["classname"], case.attrib["name"], [found.tag for found in case]) for case in cases)


def test_any_number_of_workers_reports_the_same(tmp_path: Path) -> None:
    seen = []
    files = {f"test_{name}.py": EASY for name in "abcde"}
    for count in range(4):
        status, printed = finish_run(tmp_path, files, f"--workers={count}", "--junitxml=report.xml")
        assert printed.count("careful\n") == 5
        assert printed.count("no such thing") == 5
        seen.append((status, summary(printed), outcomes(tmp_path / "report.xml")))
    assert seen[0][1] == "5 failed, 10 passed, 5 skipped, 5 xfailed, 5 warnings, 5 errors"
    assert [one == seen[0] for one in seen] == [True] * 4


@pytest.mark.parametrize(
    ("death", "cause"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
        ("os._exit(3)", "exit status 3"),
        ("os.abort()", "signal 6"),
    ],
)
def test_a_worker_that_dies_fails_the_test_that_it_ran_and_others_run_the_rest(
    tmp_path: Path, death: str, cause: str
) -> None:
    deadly = f"import os, signal\ndef test_before(): pass\ndef test_dies(): {death}\ndef test_after(): pass\n"
    status, printed = finish_run(tmp_path, {"test_a.py": deadly, "test_b.py": EASY, "test_c.py": EASY}, "--workers=2")
    assert status == 1
    assert f"FAILED test_a.py::test_dies - worker died with {cause} in test test_a.py::test_dies" in printed
    assert summary(printed) == "3 failed, 6 passed, 2 skipped, 2 xfailed, 2 warnings, 2 errors"


def test_a_test_that_hangs_fails_also_if_it_hears_no_signal(tmp_path: Path) -> None:
    sleeps = "import time, pytest\n@pytest.mark.timeout(1)\ndef test_hangs(): time.sleep(300)\n"
    deaf = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n"
    files = {"test_a.py": sleeps, "test_b.py": sleeps.replace("time.sleep", f"exec({deaf!r}) or time.sleep")}
    status, printed = finish_run(tmp_path, files, "--workers=2")
    assert status == 1
    assert "test_a.py::test_hangs - Failed: Timeout" in printed
    assert "test_b.py::test_hangs - worker died with signal 9" in printed


def test_after_as_many_failures_as_are_allowed_no_test_begins(tmp_path: Path) -> None:
    files = {f"test_{number}.py": "def test_a(): assert 0\ndef test_b(): assert 0\n" for number in range(9)}
    status, printed = finish_run(tmp_path, files, "--workers=2", "-x")
    assert status == 1
    assert re.fullmatch("[12] failed", summary(printed))
    assert "stopping after" in printed


def test_fixtures_of_the_session_are_made_and_ended_once_in_each_worker(tmp_path: Path) -> None:
    conftest = """
import os, pytest
pytest_plugins = ["tests.support.workers.plugin"]
@pytest.fixture(scope="session")
def shared():
    with open("log", "a") as log: print("begins", os.getpid(), file=log)
    yield
    with open("log", "a") as log: print("ends", os.getpid(), file=log)
    assert not os.path.exists("breaks")
"""
    files = {"conftest.py": conftest} | {f"test_{number}.py": "def test_a(shared): pass" for number in range(9)}
    status, _ = finish_run(tmp_path, files, "--workers=2")
    said = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    workers = {pid for _, pid in said}
    assert status == 0
    assert sorted(said) == sorted([word, pid] for word in ("begins", "ends") for pid in workers)
    status, printed = finish_run(tmp_path, {**files, "breaks": ""}, "--workers=2")
    assert (status, printed.count("\nERROR ")) == (1, 2)
    breaking = conftest.replace("    yield", "    raise OSError('no such server')")
    status, printed = finish_run(tmp_path, {**files, "conftest.py": breaking}, "--workers=2")
    assert (status, summary(printed)) == (1, "9 errors")


def test_an_interrupted_run_ends_its_workers_after_their_fixtures_and_what_these_started(tmp_path: Path) -> None:
    waits = """
import subprocess, time, pytest
@pytest.fixture
def program(request):
    with subprocess.Popen(["sleep", "1000"]) as process:
        with open(f"pid-{request.node.path.stem}", "w") as file: file.write(str(process.pid))
        yield
        process.kill()
def test_waits(program): time.sleep(300)
"""
    with start_run(tmp_path, {"test_a.py": waits, "test_b.py": waits}, "--workers=2") as process:
        until(lambda: len([file for file in tmp_path.glob("pid-*") if file.read_text()]) == 2)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate()
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in printed
    assert not [file for file in tmp_path.glob("pid-*") if Path("/proc", file.read_text()).exists()]


def test_each_worker_has_ports_and_a_folder_of_its_own(tmp_path: Path) -> None:
    text = """
from tests.support.ports import free_port
def test_it(tmp_path):
    with open("log", "a") as log: print(tmp_path.parent.name, *(free_port() for _ in range(20)), file=log)
"""
    status, _ = finish_run(tmp_path, {f"test_{number}.py": text for number in range(6)}, "--workers=3")
    assert status == 0
    ports: dict[str, set[int]] = {}
    for line in (tmp_path / "log").read_text().splitlines():
        folder, *numbers = line.split()
        ports.setdefault(folder, set()).update(map(int, numbers))
    assert set(ports) <= {"w0", "w1", "w2"}
    assert len(set().union(*ports.values())) == sum(map(len, ports.values())) == 120
