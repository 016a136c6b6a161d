"""The root helper as a real process: who may connect, what is refused, and what a hostile peer cannot do."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agents.devices.nvml.writer import DEFAULT_MODE, EXCLUSIVE_PROCESS_MODE, PROHIBITED_MODE
from agents.devices.privileged.server import MOST_PEERS, serve
from agents.devices.privileged.setup import CannotServe, HelperSetup
from agents.devices.privileged.wire import MOST_BYTES
from agents.seams.device import DeviceError, Trouble
from tests.agents.devices.privileged.file_devices import AS_BOUGHT, GPU, OTHER, FileBoard
from tests.agents.devices.privileged.running import ROOT, Helper, received, running
from tests.support.patience import patience, until
from tests.support.soak import scaled

NOBODY = 65534
as_root = pytest.mark.needs_root("to speak as another user")


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[Helper]:
    with running(tmp_path, uid=os.geteuid()) as started:
        yield started


def test_each_verb_does_what_it_says_and_its_end_undoes_it(helper: Helper) -> None:
    helper.client.lock_clock(GPU, 900)
    helper.client.set_power_mw(GPU, 150_000)
    helper.client.set_compute_mode(GPU, EXCLUSIVE_PROCESS_MODE)
    assert helper.device() == {"clock": 900, "power": 150_000, "mode": 3}
    assert helper.device(OTHER) == AS_BOUGHT
    helper.client.reset_clock(GPU)
    assert helper.device()["clock"] is None
    assert helper.stop() == 0
    assert helper.device() == AS_BOUGHT
    assert not helper.socket.exists()


def test_what_is_already_set_is_not_written_again(helper: Helper) -> None:
    helper.client.set_power_mw(GPU, AS_BOUGHT["power"] or 0)
    helper.client.set_compute_mode(GPU, DEFAULT_MODE)
    assert helper.writes() == []


@pytest.mark.parametrize(
    ("verb", "value", "trouble"),
    [
        ("lock_clock", 901, Trouble.OUT_OF_RANGE),
        ("lock_clock", 0, Trouble.GARBLED),
        ("set_power_mw", 99_999, Trouble.OUT_OF_RANGE),
        ("set_power_mw", 300_001, Trouble.OUT_OF_RANGE),
        ("set_power_mw", -1, Trouble.GARBLED),
        ("set_power_mw", 10**30, Trouble.GARBLED),
    ],
)
def test_a_value_that_the_device_does_not_support_never_reaches_it(
    helper: Helper, verb: str, value: int, trouble: Trouble
) -> None:
    with pytest.raises(DeviceError) as caught:
        getattr(helper.client, verb)(GPU, value)
    assert caught.value.trouble is trouble
    assert helper.writes() == []


def test_a_device_is_prohibited_only_where_it_was_so_before(helper: Helper) -> None:
    with pytest.raises(DeviceError, match="was not in mode prohibited"):
        helper.client.set_compute_mode(GPU, PROHIBITED_MODE)
    helper.preset(mode=PROHIBITED_MODE)
    helper.client.set_compute_mode(GPU, EXCLUSIVE_PROCESS_MODE)
    helper.client.set_compute_mode(GPU, PROHIBITED_MODE)
    assert helper.device()["mode"] == PROHIBITED_MODE


def test_a_device_that_is_not_there_is_named(helper: Helper) -> None:
    with pytest.raises(DeviceError) as caught:
        helper.client.reset_clock("GPU-gone")
    assert caught.value.trouble is Trouble.LOST


def test_a_setting_that_is_accepted_and_not_in_force_is_reported(helper: Helper) -> None:
    helper.fault(deaf=True)
    with pytest.raises(DeviceError) as caught:
        helper.client.set_power_mw(GPU, 150_000)
    assert caught.value.trouble is Trouble.NOT_APPLIED


@pytest.mark.slow
@as_root
def test_another_user_is_refused_and_named(tmp_path: Path) -> None:
    with running(tmp_path, uid=1234) as helper:
        helper.socket.chmod(0o666)  # so that it is the credential that refuses, and not the file's mode
        for folder in (tmp_path, *tmp_path.parents[:3]):
            folder.chmod(folder.stat().st_mode | 0o011)
        answer = spoken_as(NOBODY, helper.socket, b'{"verb": "reset_clock", "uuid": "%s"}\n' % GPU.encode())
        assert json.loads(answer)["trouble"] == "no_permission"
        assert helper.writes() == []
        assert f"user {NOBODY}" in helper.log()
        assert json.loads(spoken_as(1234, helper.socket, b'{"verb": "hello"}\n'))["ok"]


@as_root
@pytest.mark.needs("setpriv", "util-linux")
def test_it_needs_no_capability_but_those_of_its_unit(tmp_path: Path) -> None:
    unit = (ROOT / "deploy" / "systemd" / "gpuwright-privileged.service").read_text()
    [line] = [line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet=")]
    kept = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in line.partition("=")[2].split())
    under = ["setpriv", f"--bounding-set=-all,{kept}", "--inh-caps=-all", "--no-new-privs"]
    with running(tmp_path, uid=1234, gid=4321, under=under) as helper:
        found = helper.socket.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (1234, 4321, 0o660)
        helper.client.set_power_mw(GPU, 150_000)
        assert helper.stop() == 0
        assert helper.device() == AS_BOUGHT


@pytest.mark.slow
@as_root
def test_a_group_may_be_named_instead_and_only_the_peers_own_counts(tmp_path: Path) -> None:
    with running(tmp_path, gid=4321) as helper:
        assert helper.socket.stat().st_gid == 4321
        helper.socket.chmod(0o666)
        for folder in (tmp_path, *tmp_path.parents[:3]):
            folder.chmod(folder.stat().st_mode | 0o011)
        assert json.loads(spoken_as(NOBODY, helper.socket, b'{"verb": "hello"}\n', gid=4321))["ok"]
        assert json.loads(spoken_as(NOBODY, helper.socket, b'{"verb": "hello"}\n'))["trouble"] == "no_permission"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"{}",
        b"[]",
        b'{"verb": "format_disk"}',
        b'{"verb": "hello", "more": 1}',
        b'{"verb": "lock_clock", "uuid": "%s"}' % GPU.encode(),
        b'{"verb": "lock_clock", "uuid": "%s", "mhz": "900"}' % GPU.encode(),
        b'{"verb": "lock_clock", "uuid": "%s", "mhz": 900.5}' % GPU.encode(),
        b'{"verb": "set_compute_mode", "uuid": "%s", "mode": "odd"}' % GPU.encode(),
        b'{"verb": "reset_clock", "uuid": "../../etc/passwd"}',
        b'{"verb": "reset_clock", "uuid": "GPU-1\\n"}',
        b"[" * MOST_BYTES,
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_request_is_answered_with_what_is_wrong(helper: Helper, line: bytes) -> None:
    assert json.loads(helper.ask_raw(line + b"\n"))["trouble"] == "garbled"
    assert helper.writes() == []
    assert helper.client.hello().ok


def test_an_unknown_verb_is_logged_on_one_line(helper: Helper) -> None:
    helper.ask_raw(b'{"verb": "format_disk\\u001b[31m"}\n')
    until(lambda: "format_disk" in helper.log())
    assert "\x1b" not in helper.log()


def test_an_oversized_line_is_cut_off(helper: Helper) -> None:
    assert json.loads(helper.ask_raw(b'{"verb": "' + b"x" * 10_000))["trouble"] == "garbled"
    helper.ask_raw(b"x" * 3_000_000)  # it hangs up long before
    assert helper.client.hello().ok


def test_random_bytes_harm_nothing(helper: Helper) -> None:
    random_bytes = random.Random(4)
    for _ in range(scaled(2000, 200)):
        helper.ask_raw(random_bytes.randbytes(random_bytes.randrange(700)) + b"\n")
    until(helper.answers)
    assert helper.writes() == []


def test_slow_peers_delay_no_other(helper: Helper) -> None:
    slow = [helper.connected() for _ in range(3 * MOST_PEERS)]
    for connection in slow:
        with suppress(BrokenPipeError):  # already sent away for another
            connection.sendall(b'{"verb": "lock_')
    for _ in range(20):
        assert helper.client.hello().ok
    assert all(received(connection) == b"" for connection in slow), "each is sent away in the end"
    for connection in slow:
        connection.close()


def test_a_peer_that_hangs_up_in_the_middle_leaves_nothing_behind(helper: Helper) -> None:
    helper.client.hello()
    before = helper.open_files()
    for _ in range(50):
        with helper.connected() as connection:
            connection.sendall(b'{"verb": "lock_clock", ')
    until(lambda: helper.open_files() <= before)


@pytest.mark.slow
def test_a_flood_is_held_to_a_rate_and_does_not_fill_the_log(helper: Helper) -> None:
    replies = [json.loads(helper.ask_raw(b'{"verb": "hello"}\n')) for _ in range(600)]
    refused = [reply for reply in replies if not reply["ok"]]
    assert refused
    assert {reply["trouble"] for reply in refused} == {"timeout"}
    assert helper.log().count("\n") < 200
    until(helper.answers)


@pytest.mark.slow
def test_only_one_helper_serves_a_folder(helper: Helper) -> None:
    words = ["-m", "tests.agents.devices.privileged.file_devices", str(helper.where), "-", "-"]
    second = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=patience())
    assert second.returncode == 1
    assert "another helper already uses" in second.stderr
    assert "Traceback" not in second.stderr
    assert helper.client.hello().ok


@pytest.mark.parametrize("place", [{"uid": NOBODY}, {"uid": 1234, "gid": NOBODY}])
def test_the_overflow_user_may_not_be_let_in(tmp_path: Path, place: dict[str, int]) -> None:
    with pytest.raises(CannotServe, match="name a dedicated user"):
        serve(HelperSetup(tmp_path / "socket", tmp_path / "state", **place), FileBoard(tmp_path / "board.json"))


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    with pytest.raises(CannotServe, match="can be written by others"):
        serve(HelperSetup(tmp_path / "socket", tmp_path / "state"), FileBoard(tmp_path / "board.json"))


def spoken_as(uid: int, socket: Path, line: bytes, gid: int = NOBODY) -> bytes:
    """The answer that a process of another user gets."""
    program = (
        "import os, socket, sys\n"
        f"os.setgroups([]); os.setgid({gid}); os.setuid({uid})\n"
        "connection = socket.socket(socket.AF_UNIX)\n"
        "connection.connect(sys.argv[1])\n"
        "try:\n"
        f"    connection.sendall({line!r})\n"
        "except BrokenPipeError:\n"
        "    pass\n"
        "sys.stdout.write(connection.makefile().read())\n"
    )
    words = ["/usr/bin/python3", "-c", program, str(socket)]
    done = subprocess.run(words, capture_output=True, timeout=patience(), cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout
