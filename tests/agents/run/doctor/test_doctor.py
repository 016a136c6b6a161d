"""The doctor on this machine, which has no GPU: its findings, and that it neither hangs nor changes anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agents.node.state_folder import Credential, StateFolder
from agents.run.doctor import Diagnosis, DoctorFinding, Level, examine, machine, mps, neighbours
from agents.run.doctor.bounded import run
from agents.run.doctor.findings import fail, ok
from agents.run.doctor.gpus import check_settable
from agents.run.opening import AgentOptions
from tests.support.needs import need_no_gpu
from tests.support.patience import patience

ROOT = Path(__file__).parents[4]
NOBODY = 65534
as_root = pytest.mark.needs_root("to be another user")


def levels(findings: list[DoctorFinding] | Iterator[DoctorFinding]) -> list[str]:
    return [finding.level.value for finding in findings]


@pytest.fixture
def options() -> Iterator[AgentOptions]:
    with tempfile.TemporaryDirectory() as short:  # pytest's own are too long for a socket's name
        yield AgentOptions(Path(short) / "a")


@pytest.fixture
def no_driver() -> None:
    need_no_gpu()


@pytest.mark.usefixtures("no_driver")
def test_a_machine_without_a_gpu_gets_a_single_sentence(options: AgentOptions) -> None:
    findings = examine(options)
    assert findings.exit_code == 3
    assert "no NVIDIA GPU here" in findings.text().splitlines()[-1]
    driver = findings.findings[0]
    assert (driver.check, driver.level) == ("driver", Level.FAIL)
    assert "Traceback" not in findings.text()
    assert {finding.level for finding in findings.findings[1:]} <= {Level.OK, Level.WARN}


@pytest.mark.usefixtures("no_driver")
def test_what_it_says_to_a_program_is_what_it_says_to_a_person(options: AgentOptions) -> None:
    findings = examine(options)
    report = json.loads(findings.json())
    assert report["exitCode"] == 3
    assert report["hasGpu"] is False
    assert [finding["check"] for finding in report["findings"]] == [finding.check for finding in findings.findings]
    for finding in findings.findings:
        assert finding.found.split()[0] in findings.text()
        assert finding.advice or finding.level is Level.OK, f"{finding.check} says what is wrong and not what to do"


def test_simulated_gpus_need_no_driver(options: AgentOptions) -> None:
    findings = examine(replace(options, device="simulated", simulated_gpus=2))
    assert findings.has_gpu
    assert "2 simulated v100-16gb" in findings.findings[0].found
    assert findings.exit_code == 0, findings.text()


def test_it_changes_nothing(options: AgentOptions) -> None:
    options.folder.mkdir(mode=0o700)
    (options.folder / "memory.json").write_text("{}")
    before = sorted((path, path.stat().st_mtime_ns) for path in options.folder.parent.rglob("*"))
    examine(options)
    assert sorted((path, path.stat().st_mtime_ns) for path in options.folder.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("found", "has_gpu", "code"),
    [
        ((ok("a", "x"),), True, 0),
        ((ok("a", "x"), DoctorFinding("b", Level.WARN, "y", "z")), True, 0),
        ((ok("a", "x"), fail("b", "y", "z")), True, 1),
        ((fail("driver", "y", "z"),), False, 3),
    ],
)
def test_the_exit_code_is_the_worst_that_was_found(found: tuple[DoctorFinding, ...], has_gpu: bool, code: int) -> None:
    assert Diagnosis(found, has_gpu).exit_code == code


def test_a_check_that_hangs_or_breaks_is_one_line_and_hides_no_other() -> None:
    hangs = threading.Event()

    def hanging() -> list[DoctorFinding]:
        hangs.wait(600)
        return []

    def breaking() -> list[DoctorFinding]:
        raise KeyError("oops")

    found = run([("a", hanging), ("b", breaking), ("c", lambda: [ok("c", "fine")])], seconds=0.5)
    hangs.set()
    assert [finding.check for finding in found] == ["a", "b", "c"]
    assert levels(found) == ["fail", "fail", "ok"]
    assert "no answer within 0.5 s" in found[0].found


# Folders


def test_a_state_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    [finding] = machine.state_folder(tmp_path)
    assert finding.level is Level.FAIL
    assert finding.advice == f"chmod 700 {tmp_path}"


@pytest.mark.slow
@as_root
def test_a_folder_that_cannot_be_entered_is_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o011)
    output = as_nobody(
        "from agents.run.doctor import machine, mps\n"
        f"where = Path({str(tmp_path)!r}) / 'closed' / 'inner'\n"
        "print([finding.level.value for finding in (*machine.state_folder(where), *mps.folder(where))])\n"
    )
    assert output == "['fail', 'fail']\n"


@as_root
def test_a_state_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    os.chown(tmp_path, NOBODY, -1)
    [finding] = machine.state_folder(tmp_path)
    assert finding.level is Level.FAIL
    assert f"belongs to user {NOBODY}" in finding.found


def test_a_credential_that_others_may_read_is_refused(tmp_path: Path) -> None:
    StateFolder(tmp_path).keep_credential(Credential("http://127.0.0.1:9", "node-1", "secret-token"))
    assert levels(machine.credential(tmp_path)) == ["ok"]
    (tmp_path / "credential.json").chmod(0o644)
    [finding] = machine.credential(tmp_path)
    assert finding.level is Level.FAIL
    assert "secret-token" not in finding.found + finding.advice


@pytest.mark.parametrize("content", ["", "{", "[]", '{"server": 1}'])
def test_a_credential_that_is_none_is_no_traceback(tmp_path: Path, content: str) -> None:
    (tmp_path / "credential.json").write_text(content)
    assert levels(machine.credential(tmp_path)) == ["fail"]
    assert list(neighbours.control_plane(tmp_path)) == []


def test_an_mps_folder_that_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    [finding] = mps.folder(tmp_path / ("x" * 100))
    assert finding.level is Level.FAIL
    assert "too long" in finding.found


def test_a_template_with_a_fault_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("argv: [sleep, '{seconds}']\n")
    [finding] = machine.templates(tmp_path, tmp_path, image=None)
    assert finding.level is Level.FAIL
    assert "mine.yaml" in finding.found


def test_a_template_whose_program_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("argv: [no-such-program-here]\n")
    [finding] = machine.templates(tmp_path, tmp_path, image=None)
    assert "mine (no-such-program-here is not installed)" in finding.found
    assert "mine" in next(iter(machine.templates(tmp_path, tmp_path, image=""))).found.partition("cannot")[2]


def test_a_missing_folder_for_shared_memory_is_reported(tmp_path: Path) -> None:
    assert levels(machine.check_shared_memory(tmp_path)) == ["ok"]
    assert levels(machine.check_shared_memory(tmp_path / "none")) == ["fail"]


def test_an_address_that_is_not_of_this_machine_has_no_free_port() -> None:
    assert levels(machine.ports("127.0.0.1"))[0] != "fail"
    assert levels(machine.ports("192.0.2.1")) == ["fail"]


@pytest.mark.slow
@as_root
def test_without_a_root_helper_only_root_can_set_anything() -> None:
    assert levels(check_settable(None)) == ["warn"]
    output = as_nobody(
        "from agents.run.doctor.gpus import check_settable\n"
        "print([finding.level.value for finding in check_settable(None)])\n"
    )
    assert output == "['fail']\n"


def as_nobody(program: str) -> str:
    """The output of a program that runs as another user."""
    preamble = "import os\nfrom pathlib import Path\nimport agents.run.doctor.mps\n"
    become = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    done = subprocess.run(
        [sys.executable, "-c", preamble + become + program],
        capture_output=True, text=True, cwd=ROOT, timeout=patience(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
