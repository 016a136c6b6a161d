"""HAProxy's answers are believed only where they are whole: anything else is an error, said and tried again."""

from __future__ import annotations

import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from agents.gateway.haproxy import parsing
from agents.gateway.haproxy.haproxy import NotApplied
from agents.gateway.haproxy.master_socket import HaproxyAway, MasterSocket, WorkerGone
from agents.gateway.haproxy.parsing import HaproxyGarbled, HaproxyProcess, ServerLoad, ServerState
from agents.gateway.sidecar import Sidecar, Troubles
from agents.gateway.wire import DeclaredRoutes, RouteSpec
from tests.agents.gateway.test_routes import answering
from tests.support.haproxy import ANY_KEY, ANY_TABLE, Copies, Gateway
from tests.support.patience import until
from tests.support.soak import scaled

Spoil = Callable[[str, bytes], bytes]  # a command and its answer, and what is answered instead


class Between:
    """Stands between sidecar and master, and spoils answers."""

    def __init__(self, path: Path, master: Path) -> None:
        self.path = path
        self.master = master
        self.spoil: Spoil = lambda _, said: said
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(64)
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._socket.accept()
                with suppress(OSError), caller:
                    command = _all(caller)
                    with socket.socket(socket.AF_UNIX) as master:
                        master.connect(str(self.master))
                        master.sendall(command)
                        master.shutdown(socket.SHUT_WR)
                        said = _all(master)
                    caller.sendall(self.spoil(command.decode().split(" ", 1)[-1].strip(), said))


def _all(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


@contextmanager
def with_bad_answers(tmp_path: Path, seconds: float = 5.0) -> Iterator[tuple[Gateway, Between, Sidecar]]:
    gateway = Gateway(tmp_path / "gateway")
    between = Between(tmp_path / "between.sock", gateway.master)
    try:
        gateway.start_haproxy()
        sidecar = Sidecar(gateway.state, between.path, gateway.requests)
        try:
            yield gateway, between, sidecar
        finally:
            sidecar.close()
    finally:
        between.close()
        gateway.close()


def declared(copies: Copies, sequence: int, index: int) -> DeclaredRoutes:
    return DeclaredRoutes(
        sequence,
        (RouteSpec(f"copy-{index}", "shop/search", f"127.0.0.1:{copies.ports[index]}", paths=ANY_KEY),),
        ANY_TABLE,
    )


def instead(command: str, said: bytes, asked: str, good: bytes) -> bytes:
    return said if asked.startswith(command) else good


BAD = [
    ("set server", b"Require 'weight <weight>'.\n\n"),
    ("show servers state", b"1\n# be_id be_name\n3 gw-0001\n\n"),
    ("show servers state", b""),
    ("show map", b"Unknown map identifier.\n\n"),
    ("show stat", b"# pxname,svname,qcur,qmax,scur,smax\ngw-0001,x,a,b\n\n"),
    ("show stat", b"# pxname,svname,qcur,qmax,scur,smax\n\n"),
    ("proc", b"Permission denied\n\n"),
]


@pytest.mark.slow
def test_a_bad_answer_is_an_error_and_the_change_is_made_once_answers_are_good(tmp_path: Path, copies: Copies) -> None:
    with with_bad_answers(tmp_path) as (gateway, between, sidecar):
        sidecar.declare("node-1", declared(copies, 1, 0))
        for sequence, (command, said) in enumerate(BAD, 2):
            index = sequence % 8
            between.spoil = partial(instead, command, said)
            with pytest.raises(Troubles):
                sidecar.declare("node-1", declared(copies, sequence, index))
            assert not sidecar.condition().in_force
            between.spoil = lambda _, good: good
            if sequence == 2:
                until(lambda: sidecar.condition().in_force, "it is tried again")
            else:
                sidecar.declare("node-1", declared(copies, sequence, index))
            assert answering(gateway) == {copies.ports[index]: 8}


@pytest.mark.slow
def test_a_server_that_is_refused_for_a_moment_is_left_out_and_tried_again(tmp_path: Path, copies: Copies) -> None:
    with with_bad_answers(tmp_path) as (gateway, between, sidecar):
        between.spoil = partial(instead, "add server", b"Unable to connect: no memory.\n\n")
        (route,) = sidecar.declare("node-1", declared(copies, 1, 0)).routes
        assert not route.ready
        assert [left_out.copy for left_out in sidecar.condition().left_out] == ["copy-0"]
        between.spoil = lambda _, good: good
        until(lambda: not sidecar.condition().left_out and sidecar.condition().in_force, "it is tried again")
        assert answering(gateway) == {copies.ports[0]: 8}


def test_a_change_that_was_accepted_and_not_made_is_noticed(tmp_path: Path, copies: Copies) -> None:
    with with_bad_answers(tmp_path) as (_, between, sidecar):
        sidecar.declare("node-1", declared(copies, 1, 0))
        stale = (
            MasterSocket(between.master).ask("show servers state", MasterSocket(between.master).workers()[0]).encode()
            + b"\n\n"
        )
        between.spoil = lambda asked, good: stale if asked == "show servers state" else good
        with pytest.raises(NotApplied, match="has not applied: add server gw-0001/node-1:copy-1"):
            sidecar.declare("node-1", declared(copies, 2, 1))


def test_no_garbage_ends_the_sidecar(tmp_path: Path, copies: Copies) -> None:
    noise = random.Random(11)

    def garbage(_: str, good: bytes) -> bytes:
        match noise.randrange(4):
            case 0:
                return good[: noise.randrange(len(good) + 1)]
            case 1:
                return noise.randbytes(noise.randrange(300))
            case 2:
                at = noise.randrange(len(good) + 1)
                return good[:at] + noise.randbytes(5) + good[at:]
        return good

    with with_bad_answers(tmp_path) as (gateway, between, sidecar):
        between.spoil = garbage
        sequence = 0
        for sequence in range(1, scaled(1000, 60)):
            with suppress(*Troubles):
                sidecar.declare("node-1", declared(copies, sequence, sequence % 8))
        between.spoil = lambda _, good: good
        assert sidecar.declare("node-1", declared(copies, sequence + 1, 0)).routes[0].copy == "copy-0"
        assert answering(gateway) == {copies.ports[0]: 8}


# Reading


PROC = (
    "#<PID>          <type>          <reloads>       <uptime>        <version>      \n"
    "1162            master          5 [failed: 2]   0d00h02m07s     2.6.12\n"
    "# workers\n1271            worker          1               0d00h00m00s     2.6.12\n"
    "# old workers\n1233            worker          3               0d00h00m43s     2.6.12\n# programs\n"
)


def test_processes_are_read_with_the_old_ones_told_apart() -> None:
    assert parsing.parse_processes(PROC) == (HaproxyProcess(1271, old=False), HaproxyProcess(1233, old=True))


def test_servers_and_loads_are_read_by_their_column_names() -> None:
    state = (
        "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_port\n"
        "3 gw-0001 1 n:a ::1 2 8 0 9001\n"
    )
    assert parsing.parse_servers(state) == {"gw-0001": {"n:a": ServerState("::1", 9001, 0, 8, 2)}}
    rows = ("gw-0001,n:a,1,0,4,9,,8,", "gw-0001,n:b,,0,0,9,512,0,", "gw-0001,BACKEND,2,0,6,9,200,8,")
    assert parsing.parse_loads("\n".join(("# pxname,svname,qcur,qmax,scur,smax,slim,stot,", *rows, ""))) == {
        ("gw-0001", "n:a"): ServerLoad(4, 1, total=8),
        ("gw-0001", "n:b"): ServerLoad(0, 0, 512),
        ("gw-0001", "BACKEND"): ServerLoad(6, 2, total=8),
    }


@pytest.mark.parametrize(
    ("admin", "weight", "operational", "takes", "is_ready"),
    [(0, 1, 2, True, True), (0, 0, 2, False, False), (8, 1, 2, False, False), (0, 1, 0, True, False)],
)
def test_a_server_is_ready_where_it_runs_and_takes_requests(
    admin: int, weight: int, operational: int, takes: bool, is_ready: bool
) -> None:
    state = ServerState("10.0.0.1", 80, weight, admin, operational)
    assert (state.takes_requests, state.ready) == (takes, is_ready)


STATE = "1\n# be_name srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_port\n"


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (parsing.parse_processes, f"{PROC}nobody\n", "show proc: 'nobody'"),
        (parsing.parse_processes, PROC.replace("# workers", "# others"), "show proc: '#<PID>"),
        (parsing.parse_processes, PROC.replace("#<PID>", "<PID>"), "show proc: '<PID>"),
        (parsing.parse_servers, STATE + "gw-0001 n:a ::1 2 0 1\n", "show servers state: gw-0001 n:a"),
        (parsing.parse_servers, STATE + "gw-0001 n:a ::1 2 0 1 80 9\n", "show servers state: gw-0001 n:a"),
        (parsing.parse_servers, STATE + "gw-0001 n:a ::1 2 0 x 80\n", "show servers state: invalid literal"),
        (parsing.parse_servers, STATE.replace("srv_port", "port"), "show servers state: 'srv_port' is not in list"),
        (parsing.parse_servers, STATE.replace("1\n", "2\n", 1), "show servers state: '2"),
        (parsing.parse_servers, STATE.replace("# be", "be"), "show servers state: '1"),
        (parsing.parse_map, "x1 a/b gw-0001\n", "show map: 'x1"),
        (parsing.parse_map, "0x1 a/b\n", "show map: '0x1 a/b'"),
        (parsing.parse_map, "0x1 a/b gw-0001 more\n", "show map: '0x1"),
        (parsing.parse_loads, "# pxname,svname,qcur,qmax,scur,smax\n", "show stat: '# pxname"),
        (parsing.parse_loads, "# pxname,svname,qcur,qmax,scur,smax,slim,stot,\na,b,0,0,x,0,\n", "show stat: 'a,b"),
        (parsing.parse_loads, "# pxname,svname,qcur,qmax,scur,smax,slim,stot,\na,b,0\n", "show stat: 'a,b,0'"),
        (parsing.parse_info, "Name: HAProxy\n", "show info: 'Name"),
    ],
)
def test_what_is_wrong_with_an_answer_is_quoted(read: Callable[[str], object], text: str, message: str) -> None:
    with pytest.raises(HaproxyGarbled, match=f"^{re.escape(message)}"):
        read(text)


def test_what_is_right_with_an_answer_is_read() -> None:
    assert parsing.parse_servers(STATE) == {}
    assert parsing.parse_info("Name: HAProxy: x\nPid: 7\n\n") == {"Name": "HAProxy: x", "Pid": "7"}
    assert parsing.parse_map("") == {}
    programs = PROC + "44 program 0 0d00h00m00s -\n"
    assert [process.pid for process in parsing.parse_processes(programs)] == [1271, 1233]
    mapped = STATE + "gw-0001 n:a ::ffff:10.0.0.1 2 0 1 80\ngw-0001 n:b unresolved 0 0 1 80\n"
    assert [server.host for server in parsing.parse_servers(mapped)["gw-0001"].values()] == ["10.0.0.1", "unresolved"]


@pytest.mark.parametrize(
    "text",
    ["", "\n", "Permission denied", "1", "2\n# a b\n", "1\n# be_name srv_name\nx y z\n", "0x1 a", "# pxname,svname"],
)
def test_what_is_no_answer_is_refused(text: str) -> None:
    for read in (parsing.parse_processes, parsing.parse_servers, parsing.parse_loads, parsing.parse_info):
        with pytest.raises(HaproxyGarbled):
            read(text)


def test_a_map_entry_of_two_values_equals_neither() -> None:
    assert parsing.parse_map("0x1 a/b gw-0001\n0x2 a/b gw-0001\n") == {"a/b": "gw-0001"}
    assert parsing.parse_map("0x1 a/b gw-0001\n0x2 a/b gw-0002\n")["a/b"] not in ("gw-0001", "gw-0002")
    with pytest.raises(HaproxyGarbled):
        parsing.parse_map("a/b gw-0001")


def test_one_command_is_asked_at_a_time(tmp_path: Path) -> None:
    for command in ("show info; shutdown", "show info\nshow stat"):
        with pytest.raises(ValueError, match="not one command"):
            MasterSocket(tmp_path / "none").ask(command)
    with pytest.raises(HaproxyAway):
        MasterSocket(tmp_path / "none").workers()


@pytest.mark.slow
def test_a_process_that_has_ended_is_told_from_a_silent_haproxy(gateway: Gateway) -> None:
    with pytest.raises(WorkerGone):
        MasterSocket(gateway.master).ask("show info", HaproxyProcess(999_999, old=True))
