"""Reports that a server would refuse for their size or number: the agent finds out what the server accepts."""

from __future__ import annotations

import socket
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from agents.contract.fields import MOST_REPORT_BYTES
from agents.contract.reports import SEQUENCE_BITS, Copy, HeldBack, InstanceMinute, Report, UsageInterval
from agents.control.agent import Agent
from agents.control.assignments import begin_incarnation
from agents.control.join import join
from agents.keeper.copies import NodeCopy, Stage
from agents.node.fitting import fit
from agents.node.state_folder import AgentMemory, Credential, StateFolder
from agents.talk.link import LinkError
from app.store.database.database import Database
from tests.agents.control.test_agent import SPEC, agent_of, link_of
from tests.agents.talk.test_copy_client import copy_that, ok
from tests.support.nodes import served
from tests.support.reports import report, send
from tests.support.server import RunningServer
from tests.support.world import gpu_type

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
LONG = "x" * 90


def joining(api: RunningServer, folder: Path) -> Credential:
    assert api.request("POST", "/api/v1/apply", [gpu_type()]).status == 200
    token = api.request("POST", "/api/v1/jointokens", {"node": "node-1"}).json["token"]
    return join(StateFolder(folder), api.url, token, "node-1", SPEC)


def crashed(agent: Agent, folder: Path, count: int) -> None:
    """So many copies came and went, and none has been reported to the control plane."""
    node = agent._node
    for number in range(count):
        began = datetime.now(UTC) - timedelta(hours=9) + number * timedelta(seconds=7)
        copy = NodeCopy(
            f"{LONG}-{number}", served("a"), node.watch.indexes[0], Stage.GONE, started_at=began,
            ended_at=began + timedelta(seconds=5), evidence="observed",
        )  # fmt: skip
        node.ledger.record(copy)


def untold(agent: Agent) -> int:
    return sum(copy.acknowledged != "closed" for copy in agent._node.ledger.accounts())


@pytest.mark.slow
def test_an_agent_with_thousands_of_crashes_to_report_sends_a_part_and_then_more(
    api: RunningServer, tmp_path: Path
) -> None:
    credential = joining(api, tmp_path)
    agent, link = agent_of(tmp_path, credential), link_of(credential)
    crashed(agent, tmp_path, 3000)
    assert agent.report_once(link).accepted
    assert untold(agent) <= 2000
    agent.report_once(link)
    assert untold(agent) < 2000


def test_a_report_that_is_too_large_for_something_on_the_way_is_followed_by_smaller_ones(tmp_path: Path) -> None:
    sizes: list[int] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        length = int(next(line for line in head.splitlines() if b"content-length" in line.lower()).split()[1])
        while len(body) < length:
            body += connection.recv(65536)
        sizes.append(length)
        if length > 40_000:
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        else:
            connection.sendall(ok(b'{"accepted": true, "assignmentVersion": 0, "now": "2026-03-29T12:00:00Z"}'))

    with copy_that(answer) as port:
        credential = Credential(f"http://127.0.0.1:{port}", "node-1", "t")
        agent = agent_of(tmp_path, credential)
        crashed(agent, tmp_path, 500)
        while untold(agent) and len(sizes) < 30:
            with suppress(LinkError):
                agent.report_once(link_of(credential))
    refused = [size for size in sizes if size > 40_000]
    assert 2 <= len(refused) <= 4 < len(sizes) < 30
    assert sizes[: len(refused)] == sorted(refused, reverse=True), "once it has found a size it keeps to it"


def test_what_is_left_out_of_a_report_is_what_can_wait() -> None:
    usage = tuple(UsageInterval(f"{LONG}-{n}", "i", 0, NOON, NOON, "shop", "search") for n in range(4096))
    copies = tuple(Copy(f"{LONG}-{n}", "i", 0, "ready", message="é" * 500) for n in range(400))
    lines = tuple(InstanceMinute(f"{LONG}-{n}", 0, "shop", "search", latency_counts=(10**12,) * 61) for n in range(300))
    whole = Report("node-1", 1, 1, NOON, NOON, usage=usage, copies=copies, instances=lines)
    fitting, encoded = fit(whole, MOST_REPORT_BYTES)
    assert MOST_REPORT_BYTES * 0.99 < len(encoded) <= MOST_REPORT_BYTES
    assert msgspec.json.decode(encoded, type=Report) == fitting
    assert fitting.usage == usage[: len(fitting.usage)]
    assert 0 < len(fitting.usage) < 4096
    assert (len(fitting.copies), fitting.instances) == (400, lines)


def test_a_report_that_fits_is_sent_as_it_is() -> None:
    whole = Report("node-1", 1, 1, NOON, NOON, copies=(Copy("a", "i", 0, "ready", message="é" * 500),))
    assert fit(whole, MOST_REPORT_BYTES) == (whole, msgspec.json.encode(whole))


def test_the_largest_report_that_an_agent_can_make_fits_with_all_its_copies() -> None:
    """Sixteen GPUs with as many clients as MPS takes, each being handed over."""
    address = "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535"
    copies = tuple(
        Copy(f"{LONG}-{n}", LONG, 15, "starting", 33.3, 12.3, address, message="é" * 500) for n in range(16 * 48 * 2)
    )
    held = tuple(HeldBack(f"{LONG}-{n}", "no_template", "é" * 500) for n in range(4096))
    lines = tuple(
        InstanceMinute(f"{LONG}-{n}", 0, "shop", "search", latency_counts=(10**12,) * 61, requested={"batch": 1.5})
        for n in range(4096)
    )
    whole = Report("node-1", 1, 1, NOON, NOON, copies=copies, held_back=held, instances=lines)
    fitting, encoded = fit(whole, MOST_REPORT_BYTES)
    assert len(encoded) <= MOST_REPORT_BYTES
    assert [copy.id for copy in fitting.copies] == [copy.id for copy in copies]


# The number of an agent's start orders its reports.


def state_dropped(agent: Agent, credential: Credential) -> list[str]:
    return [part.reason for part in agent.report_once(link_of(credential)).dropped if part.what == "state"]


@pytest.mark.slow
def test_case_18_a_thief_that_counts_beyond_any_clock_is_refused_and_the_agent_continues(
    api: RunningServer, tmp_path: Path
) -> None:
    credential = joining(api, tmp_path)
    agent = agent_of(tmp_path, credential)
    assert state_dropped(agent, credential) == []
    stolen = report("node-1", 2**31 - 1, incarnation=2**32 - 1, health="failed")
    (refused,) = send(api, credential.token, stolen).json["dropped"]
    assert (refused["what"], refused["reason"]) == ("state", "ahead")
    assert state_dropped(agent, credential) == []
    assert api.request("GET", "/api/v1/nodes/node-1/telemetry").json["state"]["health"] == "ok"


@pytest.mark.slow
def test_case_18_after_a_theft_the_node_joins_again_and_its_name_works(api: RunningServer, tmp_path: Path) -> None:
    """The thief goes as far ahead as a clock may be."""
    credential = joining(api, tmp_path)
    ahead = int((datetime.now(UTC) + timedelta(hours=23, minutes=50)).timestamp())
    stolen = report("node-1", 2**31 - 1, incarnation=ahead, health="failed")
    assert send(api, credential.token, stolen).json["dropped"] == []
    rejoined = joining(api, tmp_path / "again")
    agent = agent_of(tmp_path / "again", rejoined)
    assert state_dropped(agent, rejoined) == ["superseded"]
    assert state_dropped(agent, rejoined) == []
    assert StateFolder(tmp_path / "again").memory().incarnation == ahead + 1


@pytest.mark.slow
def test_case_18_a_name_that_was_poisoned_before_there_was_a_bound_works_at_once(
    api: RunningServer, tmp_path: Path, database: Database
) -> None:
    credential = joining(api, tmp_path)
    agent = agent_of(tmp_path, credential)
    agent.report_once(link_of(credential))
    highest = (2**32 - 1) << SEQUENCE_BITS
    for table in ("node_state", "node_inventory"):
        database.write(lambda c, table=table: c.exec_driver_sql(f"UPDATE {table} SET ordinal = {highest}"))  # type: ignore[misc]
    assert state_dropped(agent, credential) == []


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [timedelta(days=366), timedelta(days=100 * 366)])
def test_case_18_an_agent_that_began_with_a_clock_far_ahead_continues_by_the_servers(
    api: RunningServer, tmp_path: Path, ahead: timedelta
) -> None:
    credential = joining(api, tmp_path)
    wrong = datetime.now(UTC) + ahead
    agent = agent_of(tmp_path, credential, lambda: wrong)
    first = state_dropped(agent, credential)
    assert state_dropped(agent, credential) == []
    assert first == ["ahead"] or StateFolder(tmp_path).memory().incarnation == 1
    agent.close()
    restarted = agent_of(tmp_path, credential)
    assert state_dropped(restarted, credential) == []


def test_case_18_a_number_that_no_report_can_hold_is_begun_again(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.keep_memory(AgentMemory(incarnation=2**32 + 5))
    assert begin_incarnation(folder, NOON).incarnation == 1
    assert begin_incarnation(folder, NOON).incarnation == int(NOON.timestamp())
    late = datetime(2107, 1, 1, tzinfo=UTC)
    assert begin_incarnation(folder, late).incarnation == int(NOON.timestamp()) + 1
