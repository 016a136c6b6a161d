"""The simulated driver as a process: it outlives its parent, and no client can stall it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.devices.simulated import pipe
from agents.devices.simulated.client import SOCKET
from agents.devices.simulated.connections import DriverConnections
from agents.devices.simulated.daemon import MAX_CLIENTS
from agents.devices.simulated.remote import Switches, connect, ensure_driver
from agents.host.wire import connect as connect_to
from agents.seams.device import DeviceError, MpsState, Trouble
from tests.agents.devices.device.over_driver import OverDriver
from tests.support.patience import patience, until
from tests.support.soak import scaled

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[OverDriver]:
    stage = OverDriver(tmp_path / "gpus")
    yield stage
    stage.close()


def opened(stage: OverDriver, uuid: str) -> socket.socket:
    """A bare connection to a daemon's pipe."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(patience())
    connect_to(connection, stage.folder.resolve() / "mps" / uuid / SOCKET)
    return connection


def ask(connection: socket.socket, words: dict[str, Any]) -> dict[str, Any]:
    connection.sendall(json.dumps(words).encode() + b"\n")
    return answer(connection)


def answer(connection: socket.socket) -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n"):
        more = connection.recv(4096)
        assert more, f"hung up after {line!r}"
        line += more
    return json.loads(line)  # type: ignore[no-any-return]


def drivers_of(folder: Path) -> list[int]:
    """Every driver that serves this folder, or waits to."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"agents.devices.simulated.driver" in words and os.fsencode(folder) in words:
                found.append(int(process.name))
    return found


def hung_up(connection: socket.socket) -> bool:
    try:
        return connection.recv(4096) == b""
    except ConnectionResetError:
        return True


def test_it_survives_the_kill_of_who_started_it_with_clients_and_settings(tmp_path: Path) -> None:
    folder = tmp_path / "gpus"
    program = (
        "import os, sys, signal; from pathlib import Path; from agents.devices.simulated.remote import *;"
        "folder = Path(sys.argv[1]); ensure_driver(folder, ['t4']); device, mps = connect(folder);"
        "uuid = device.gpus()[0].uuid; device.cap_power(uuid, 65.0); mps.start(uuid);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(folder)], timeout=patience())
    assert killed.returncode == -signal.SIGKILL
    device, mps = connect(folder)
    switches = Switches(folder)
    try:
        gpu = device.gpus()[0]
        assert mps.state(gpu.uuid) is MpsState.IDLE
        assert switches.truth(gpu.uuid).settings.cap_w == 65.0
        device.restore()
        assert switches.truth(gpu.uuid).settings.cap_w == 70.0
    finally:
        switches.quit()
        device.close()


def test_two_who_want_a_driver_get_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "gpus"
    threads = [threading.Thread(target=ensure_driver, args=(folder, ["t4"])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience())
    device, _ = connect(folder)
    pid = int((folder / "driver.lock").read_text())
    assert drivers_of(folder) == [pid]
    ensure_driver(folder, ["t4"])
    assert int((folder / "driver.lock").read_text()) == pid
    assert len(device.gpus()) == 1
    assert DriverConnections(folder).ask("driver", "quit") == pid
    device.close()
    until(lambda: not drivers_of(folder))


def test_after_its_kill_another_one_takes_its_place_with_the_same_gpus(stage: OverDriver) -> None:
    device, mps = stage.reopen()
    mps.start(stage.uuids[0])
    os.kill(int((stage.folder / "driver.lock").read_text()), signal.SIGKILL)

    def gone() -> bool:
        try:
            device.gpus()
        except DeviceError as error:
            return error.trouble is Trouble.NO_DRIVER
        return False

    until(gone)
    ensure_driver(stage.folder, ["v100-16gb"] * 3)
    assert tuple(gpu.uuid for gpu in device.gpus()) == stage.uuids
    assert mps.state(stage.uuids[0]) is MpsState.DOWN
    assert not (stage.folder / "mps" / stage.uuids[0] / SOCKET).exists()


def test_a_clients_pid_is_what_the_kernel_says_and_not_what_it_claims(stage: OverDriver) -> None:
    _, mps = stage.reopen()
    uuid = stage.uuids[0]
    mps.start(uuid)
    with opened(stage, uuid) as connection:
        assert ask(connection, {"pid": 1, "uuid": uuid, "smPercent": 30}) == {"smCount": 24}
        assert mps.clients(uuid) == {os.getpid()}


def test_the_client_after_the_last_is_refused_and_let_in_when_one_has_gone(stage: OverDriver) -> None:
    _, mps = stage.reopen()
    uuid = stage.uuids[0]
    mps.start(uuid)
    hello = {"uuid": uuid, "smPercent": 1}
    connections = [opened(stage, uuid) for _ in range(MAX_CLIENTS)]
    assert all("smCount" in ask(connection, hello) for connection in connections)
    with opened(stage, uuid) as late:
        assert ask(late, hello)["error"] == 808
        assert hung_up(late)
    connections.pop().close()

    def let_in() -> bool:
        with opened(stage, uuid) as another:
            return "smCount" in ask(another, hello)

    until(let_in)
    for connection in connections:
        connection.close()


NONSENSE = (
    b"nonsense",
    b"[]",
    b"\xff\xfe",
    b"[" * 3000,
    b'{"uuid": "U", "smPercent": "x"}',
    b'{"uuid": "U", "smPercent": 30, "memoryGib": NaN}',
    b'{"uuid": "U", "smPercent": 30, "memoryGib": -1}',
    b'{"uuid": "U", "smPercent": 30, "memoryGib": ' + b"9" * 1000 + b"}",
    b'{"uuid": "U", "smPercent": true}',
    b'{"uuid": "U", "smPercent": 30, "memoryLimitGib": []}',
    b"x" * 5000,
)


def test_a_client_that_talks_nonsense_is_hung_up_on(stage: OverDriver) -> None:
    _, mps = stage.reopen()
    uuid = stage.uuids[0]
    mps.start(uuid)
    noise = random.Random(1)
    random_bytes = tuple(noise.randbytes(noise.randint(1, 6000)) for _ in range(scaled(1000, 100)))
    for words in NONSENSE + random_bytes:
        with opened(stage, uuid) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(words.replace(b'"U"', json.dumps(uuid).encode()) + b"\n")
            assert hung_up(connection), words
    assert mps.clients(uuid) == frozenset()


def test_a_client_with_limits_that_are_none_or_of_another_gpu_is_refused(stage: OverDriver) -> None:
    _, mps = stage.reopen()
    uuid = stage.uuids[0]
    mps.start(uuid)
    for hello, code in (
        ({"uuid": stage.uuids[1]}, 100),
        ({"uuid": uuid, "smPercent": 0}, 1),
        ({"uuid": uuid, "memoryGib": 99}, 2),
    ):
        with opened(stage, uuid) as connection:
            assert ask(connection, hello)["error"] == code


def test_a_silent_or_never_reading_client_stalls_no_other(stage: OverDriver) -> None:
    device, mps = stage.reopen()
    uuid = stage.uuids[0]
    mps.start(uuid)
    silent = [opened(stage, uuid) for _ in range(pipe.MOST_CONNECTIONS - 10)]
    flood = opened(stage, uuid)
    assert "smCount" in ask(flood, {"uuid": uuid, "smPercent": 10})
    flood.settimeout(0.5)
    with pytest.raises(OSError):  # its answers fill the buffer, and it is left
        while True:
            flood.sendall(b'{"busy": 0.5}\n' * 500)
    honest = stage.client(mps.environment(uuid, 30, 1.0))
    assert honest.sm_count == 24
    assert device.read(uuid).memory_used_gib == pytest.approx(0.5)
    until(lambda: mps.clients(uuid) == {honest.pid})
    for connection in [*silent, flood]:
        connection.close()


def test_who_says_nothing_is_left_after_a_while_and_who_is_a_client_is_not(stage: OverDriver) -> None:
    _, mps = stage.reopen()
    uuid = stage.uuids[0]
    mps.start(uuid)
    with opened(stage, uuid) as silent, opened(stage, uuid) as client:
        assert "smCount" in ask(client, {"uuid": uuid})
        assert hung_up(silent)
        assert ask(client, {"busy": 0.1}) == {}


def test_more_connections_than_allowed_are_hung_up_on(stage: OverDriver) -> None:
    _, mps = stage.reopen()
    uuid = stage.uuids[0]
    mps.start(uuid)
    connections = [opened(stage, uuid) for _ in range(pipe.MOST_CONNECTIONS + 5)]
    assert all(hung_up(connection) for connection in connections[-5:])
    for connection in connections:
        connection.close()


def test_a_control_request_that_is_none_is_answered_as_garbled(stage: OverDriver) -> None:
    line = DriverConnections(stage.folder)
    for to, call, arguments in (
        ("device", "close", ()),
        ("device", "_slot", (stage.uuids[0],)),
        ("machine", "advance", (1e9,)),
        ("device", "read", ()),
        ("device", "read", ([],)),
        ("device", "cap_power", (stage.uuids[0], "much")),
    ):
        with pytest.raises(DeviceError) as error:
            line.ask(to, call, *arguments)
        assert error.value.trouble is Trouble.GARBLED
    assert line.ask("device", "gpus")
    line.close()


def test_a_slow_gpu_is_given_up_and_delays_no_other(stage: OverDriver) -> None:
    device, _ = stage.reopen()
    first, second, _ = stage.uuids
    stage.switches.turn("hang", first, True)
    has_asked = threading.Event()
    troubles: list[Trouble] = []

    def ask() -> None:
        has_asked.set()
        try:
            device.read(first)
        except DeviceError as error:
            troubles.append(error.trouble)

    thread = threading.Thread(target=ask)
    thread.start()
    has_asked.wait(patience())
    for _ in range(20):
        device.read(second)
    assert not troubles
    thread.join(patience())
    assert troubles == [Trouble.TIMEOUT]
    stage.switches.turn("hang", first, False)
    device.read(first)


def test_a_client_rides_out_a_restart_of_its_daemon(stage: OverDriver) -> None:
    _, mps = stage.reopen()
    uuid = stage.uuids[0]
    mps.start(uuid)
    client = stage.client(mps.environment(uuid, 30, 2.0), memory_gib=1.25)
    stage.mps_dies(uuid)
    mps.start(uuid)
    until(lambda: mps.clients(uuid) == {client.pid})
    assert not client.failed()


def test_a_daemon_whose_folder_lies_deep_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 90) / ("e" * 90)
    stage = OverDriver(folder)
    try:
        _, mps = stage.reopen()
        mps.start(stage.uuids[0])
        assert stage.client(mps.environment(stage.uuids[0], 30, 1.0)).sm_count == 24
    finally:
        stage.close()


def test_clients_that_come_and_go_leave_nothing_behind(stage: OverDriver) -> None:
    device, mps = stage.reopen()
    uuid = stage.uuids[0]
    mps.start(uuid)
    driver = Path(f"/proc/{(stage.folder / 'driver.lock').read_text()}")

    def churn(rounds: int) -> None:
        for _ in range(rounds):
            with opened(stage, uuid) as connection:
                assert "smCount" in ask(connection, {"uuid": uuid, "smPercent": 10, "memoryGib": 1})
                ask(connection, {"busy": 0.5})
        until(lambda: device.read(uuid).memory_used_gib == 0)

    def resident_kib() -> int:
        line = next(line for line in (driver / "status").read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1])

    churn(scaled(2000, 200))  # lets one-time allocations happen
    descriptors, memory_kib = len(list((driver / "fd").iterdir())), resident_kib()
    churn(scaled(20_000, 500))
    assert len(list((driver / "fd").iterdir())) == descriptors
    assert resident_kib() - memory_kib < 4096
    assert mps.clients(uuid) == frozenset()


def test_a_driver_whose_folder_is_deleted_ends(tmp_path: Path) -> None:
    folder = tmp_path / "gpus"
    program = (
        "import sys; from pathlib import Path; from agents.devices.simulated import driver; driver.LOOK_SECONDS = 0.05;"
        "sys.exit(driver.serve(Path(sys.argv[1]), ['t4']))"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(folder)])
    try:
        until((folder / "driver.sock").exists)
        shutil.rmtree(folder)
        assert process.wait(patience()) == 0
    finally:
        process.kill()
