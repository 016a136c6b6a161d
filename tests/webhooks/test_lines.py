"""Lines for files and for syslog: each arrives whole or not at all, and nothing in a name begins another."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.posting import NotDelivered
from app.store.world.audit import AuditRow
from app.webhooks.bodies import describe_entry, spell_json_line, spell_syslog
from app.webhooks.hooks import Webhook
from app.webhooks.writing import write
from tests.support.patience import patience

ENTRY: AuditRow = {
    "id": 12, "at": datetime(2026, 11, 30, 8, tzinfo=UTC), "request_id": "r1", "principal": "t7", "scope": "admin",
    "principal_tenant": "", "verb": "update", "outcome": "done", "kind": "Service", "tenant": "shop", "name": "search",
    "detail": "", "before": {"spec": {"x": 1}}, "after": {"spec": {"x": 2}},
}  # fmt: skip
# RFC 5424: PRI, VERSION, TIMESTAMP, HOSTNAME, APP-NAME, PROCID, MSGID, STRUCTURED-DATA, MSG.
SYSLOG = re.compile(
    rb"<(\d{1,3})>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}Z) ([!-~]{1,255}) ([!-~]{1,48}) - ([!-~]{1,32}) - ([ -~]*)"
)


def test_an_entry_is_a_message_of_rfc_5424_without_what_is_long() -> None:
    found = SYSLOG.fullmatch(spell_syslog(describe_entry(ENTRY), "control-1"))
    assert found is not None
    assert found.groups()[:5] == (b"110", b"2026-11-30T08:00:00.000Z", b"control-1", b"gpuwright", b"update")
    data = json.loads(found[6])
    assert (data["delivery"], data["principal"], data["tenant"], data["name"]) == ("audit-12", "t7", "shop", "search")
    assert "before" not in data and "after" not in data
    refused = SYSLOG.fullmatch(spell_syslog(describe_entry({**ENTRY, "outcome": "refused"}), ""))
    assert refused is not None and (refused[1], refused[3]) == (b"108", b"-")


@given(st.text(), st.text(), st.text(), st.text())
def test_no_name_or_remark_ends_a_line(name: str, detail: str, host: str, verb: str) -> None:
    message = describe_entry({**ENTRY, "name": name, "detail": detail, "verb": verb, "after": {name: detail}})
    line = spell_json_line(message)
    assert line.count(b"\n") == 1 and json.loads(line)["after"] == {name: detail}
    found = SYSLOG.fullmatch(spell_syslog(message, host))
    assert found is not None and json.loads(found[6])["detail"] == detail


def test_lines_of_many_threads_are_whole_and_a_rotated_file_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    hook = Webhook("file", f"file://{path}", form="jsonl")
    line = spell_json_line(describe_entry({**ENTRY, "after": {"x": "y" * 20_000}}))

    def write_ten() -> None:
        for _ in range(10):
            write(hook, line)

    threads = [threading.Thread(target=write_ten) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == line * 40
    assert path.stat().st_mode & 0o007 == 0
    path.rename(tmp_path / "audit.jsonl.1")
    write(hook, line)
    assert path.read_bytes() == line


def test_of_a_line_for_which_there_is_no_room_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    hook, line = Webhook("file", f"file://{path}", form="jsonl"), b"x" * 3000 + b"\n"
    write(hook, line)
    child = os.fork()
    if child == 0:  # a process of its own, since the limit holds for all that a process writes
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
        try:
            write(hook, line)
        except NotDelivered:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert path.read_bytes() == line


def test_a_file_or_a_socket_that_is_not_there_is_a_failure_and_its_reason(tmp_path: Path) -> None:
    for url, form in ((f"file://{tmp_path}/none/x", "jsonl"), (f"unix://{tmp_path}/none", "syslog")):
        with pytest.raises(NotDelivered, match="No such file"):
            write(Webhook("x", url, form=form), b"line")


@contextmanager
def running_tcp(dies: bool = False, talks: bool = False) -> Iterator[tuple[int, list[bytes]]]:
    """A receiver of syslog by TCP that dies before it has read, answers, or does as it should."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            try:
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        if dies:
                            continue  # what is unread then is answered by a reset
                        while data := connection.recv(65536):
                            received.append(data)
                        if talks:
                            connection.sendall(b"hello")
            except OSError:
                return

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], received
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(patience())


def test_by_tcp_a_message_has_its_length_before_it_and_counts_once_it_is_read() -> None:
    line = spell_syslog(describe_entry(ENTRY), "h")
    with running_tcp() as (port, received):
        write(Webhook("x", f"tcp://127.0.0.1:{port}", form="syslog", on_this_machine=True), line)
        assert b"".join(received) == b"%d %s" % (len(line), line)
        with pytest.raises(NotDelivered, match="where nothing is sent"):
            write(Webhook("x", f"tcp://127.0.0.1:{port}", form="syslog"), line)
    for receiver in (running_tcp(dies=True), running_tcp(talks=True)):
        with receiver as (port, _), pytest.raises(NotDelivered):
            write(Webhook("x", f"tcp://127.0.0.1:{port}", form="syslog", on_this_machine=True), line * 9000)


def test_by_udp_and_by_a_socket_of_this_machine_a_message_is_a_datagram(tmp_path: Path) -> None:
    line = spell_syslog(describe_entry(ENTRY), "h")
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unix,
    ):
        udp.bind(("127.0.0.1", 0))
        unix.bind(str(tmp_path / "log"))
        write(Webhook("x", f"udp://127.0.0.1:{udp.getsockname()[1]}", form="syslog", on_this_machine=True), line)
        write(Webhook("x", f"unix://{tmp_path}/log", form="syslog"), line)
        assert udp.recv(65536) == unix.recv(65536) == line


def test_standard_output_takes_lines_too(capfd: pytest.CaptureFixture[str]) -> None:
    write(Webhook("x", "file:///dev/stdout", form="jsonl"), b"line\n")
    assert capfd.readouterr().out == "line\n"
