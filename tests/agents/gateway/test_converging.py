"""Changes at HAProxy's sockets: which commands in which order, what a reload is for, and what is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.contract.paths import build_table, hash_rules
from agents.gateway.desired import Desired, HaproxyServer, declare, follow, give_slots
from agents.gateway.haproxy import closed_servers
from agents.gateway.haproxy import haproxy as rooms
from agents.gateway.haproxy.configuration import COPIES, GENERATED, KEYS, LIMITS, PATHS, SERVICES
from agents.gateway.haproxy.haproxy import Haproxy, NotApplied, ServersRefused
from agents.gateway.haproxy.master_socket import HaproxyAway, MasterSocket, WorkerGone
from agents.gateway.haproxy.parsing import HaproxyGarbled
from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit
from tests.support.haproxy import ANY_KEY, ANY_TABLE
from tests.support.runtime_haproxy import RuntimeHaproxy, RuntimeServer, runtime_haproxy

SERVICE = "shop/search"
BACKEND = "gw-0001"
A, B = f"{BACKEND}/n:a", f"{BACKEND}/n:b"


def route(name: str, port: int = 80, drained: bool = False, weight: float = 1.0, service: str = SERVICE) -> RouteSpec:
    return RouteSpec(name, service, f"10.0.0.1:{port}", weight, drained, paths=ANY_KEY)


def said(*routes: RouteSpec, limits: dict[str, ServiceLimit] | None = None) -> Desired:
    state = declare(Desired(), "n", DeclaredRoutes(1, routes, ANY_TABLE))
    return give_slots(follow(state, {}, limits or {}), idle=())


class Site:
    """The gateway's writer, and what stands for HAProxy."""

    def __init__(self, remote: RuntimeHaproxy) -> None:
        self.read_at_reload: list[str] = []  # the servers in the files
        self.remote = remote
        self.haproxy = Haproxy(MasterSocket(remote.path, 5.0), remote.state, "127.0.0.1:1")
        self.haproxy.write(Desired())
        remote.start_process()

    def converge(self, *routes: RouteSpec, limits: dict[str, ServiceLimit] | None = None) -> rooms.ObservedHaproxy:
        return self.haproxy.converge(said(*routes, limits=limits))

    def see_files(self, line: str) -> None:
        """Notes which servers the files have as HAProxy is reloaded."""
        if line == "reload":
            lines = (self.remote.state / GENERATED).read_text().splitlines()
            found = [each.split()[1] for each in lines if each.startswith("    server ") and " weight " in each]
            self.read_at_reload = found

    def map(self, name: str) -> dict[str, str]:
        return self.remote.now.maps[str(self.remote.state / name)]

    def servers(self) -> dict[str, RuntimeServer]:
        return self.remote.now.backends[BACKEND]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with runtime_haproxy(tmp_path) as remote:
        yield Site(remote)


def test_a_copy_is_added_before_its_service_is_found_and_drained_after_no_request_chooses_it(site: Site) -> None:
    limits = {SERVICE: ServiceLimit(7, tpot_ms=1.0)}  # of a language model: copies are chosen by the map
    observed = site.converge(route("a"), limits=limits)
    folder, slot = site.remote.state, site.map(SERVICES)[SERVICE]
    server = f"{slot}/n:a"
    changed = site.remote.changed()
    assert changed[0] == f"add map {folder / LIMITS} {SERVICE} 0:7:2:0"
    assert changed[1].startswith(f"add map {folder / PATHS} ^{ANY_KEY}:")
    assert changed[2].startswith(f"add map {folder / KEYS} {SERVICE} ")
    assert changed[3].startswith(f"add server {server} 10.0.0.1:80 weight 256 maxconn 512 ")
    assert changed[4:] == [
        f"enable health {server}",
        f"set server {server} state ready",
        f"add map {folder / SERVICES} {SERVICE} {slot}",
        f"add map {folder / COPIES} {SERVICE} n:a=256=512",
    ]
    assert (observed.servers["n:a"].ready, observed.unfinished, observed.open_requests) == (True, 0, {"n:a": 0})
    assert len(observed.idle_slots) == 63
    observed = site.converge(route("a", drained=True), limits=limits)
    assert site.remote.changed() == [
        f"del map {folder / COPIES} {SERVICE}",
        f"set server {server} state drain",
        f"set server {server} weight 0",
    ]
    assert not observed.servers["n:a"].ready
    site.haproxy.converge(give_slots(Desired(slots={"x/y": 1}), ()))
    changed = site.remote.changed()
    services = [each for each in changed if SERVICES in each]
    assert services == [f"del map {folder / SERVICES} {SERVICE}", f"add map {folder / SERVICES} x/y gw-0001"]
    assert f"del server {server}" in changed
    assert changed.index(services[0]) < changed.index(f"del server {server}")
    assert site.map(KEYS) == site.map(PATHS) == site.map(LIMITS) == {}


def test_a_server_with_requests_is_deleted_later_and_its_slot_is_not_idle_before(site: Site) -> None:
    site.converge(route("a"), route("b"))
    site.servers()["n:a"].open = 2
    observed = site.converge(route("b"))
    assert (observed.unfinished, observed.open_requests) == (1, {"n:a": 2, "n:b": 0})
    observed = site.converge()
    assert (observed.unfinished, set(site.servers())) == (1, {"n:a"})
    assert 1 not in observed.idle_slots
    site.servers()["n:a"].open = 0
    observed = site.converge()
    assert (observed.unfinished, observed.servers, len(observed.idle_slots)) == (0, {}, 64)
    site.remote.now.waiting[BACKEND] = 1
    assert 1 not in site.converge().idle_slots, "a request may still come to it"


def test_a_server_is_deleted_once_no_request_can_come_back_to_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.converge(route("a"), route("b"))
    site.servers()["n:a"].total = 1
    monkeypatch.setattr(closed_servers, "WAIT_SECONDS", 1e9)
    observed = site.converge()
    assert (observed.unfinished, set(site.servers())) == (1, {"n:a"}), "no request ever came to the other"
    monkeypatch.setattr(closed_servers, "WAIT_SECONDS", 0.0)
    assert (site.converge().unfinished, site.servers()) == (0, {})


def test_everything_that_somebody_changed_is_put_right_and_nothing_else_is_said(site: Site) -> None:
    wanted = (route("a"), route("b", 81))
    site.converge(*wanted)
    site.remote.changed()
    site.converge(*wanted)
    assert site.remote.changed() == []
    servers = site.servers()
    servers["n:a"].weight, servers["n:b"].host, servers["n:b"].admin, servers["n:a"].most_open = 3, "10.0.0.9", 1, 9
    servers["stranger"] = RuntimeServer("10.0.0.7", 1, 1, 1)
    servers["x:stranger"] = RuntimeServer("10.0.0.7", 1, 1, 1, admin=0)
    site.map(SERVICES).update({SERVICE: "gw-0002", "other/one": "gw-0003"})
    with pytest.raises(NotApplied, match="has not applied: set server gw-0001/n:a weight 256"):
        site.haproxy.observe(said(*wanted))
    site.converge(*wanted)
    assert sorted(site.remote.changed()) == sorted([
        f"set server {A} weight 256", f"set maxconn server {A} 512", f"set server {B} addr 10.0.0.1 port 81",
        f"set server {B} state ready", f"enable health {B}", "set server gw-0001/x:stranger state maint",
        "del server gw-0001/x:stranger", f"set map {site.remote.state / SERVICES} {SERVICE} gw-0001",
        f"del map {site.remote.state / SERVICES} other/one",
    ])  # fmt: skip
    servers["n:a"].most_open = 9
    with pytest.raises(NotApplied, match="has not applied: set maxconn server gw-0001/n:a 512"):
        site.haproxy.observe(said(*wanted))


def test_an_old_process_gets_no_change_but_counts_with_its_requests(site: Site) -> None:
    site.converge(route("a"), route("b", 81))
    site.servers()["n:a"].open, site.servers()["n:a"].queued, site.remote.now.waiting[BACKEND] = 3, 1, 2
    site.remote.start_process()
    site.remote.changed()
    observed = site.converge(route("a", drained=True), route("b", 81))
    assert observed.open_requests == {"n:a": 6, "n:b": 2}, "what waits may come to any of them"
    assert [worker.old for worker in observed.workers] == [False, True]
    assert not observed.servers["n:a"].ready
    open_requests = site.haproxy.open_by_slot(observed.workers)
    assert open_requests == {**dict.fromkeys(range(1, 65), 0), 1: 6}
    assert site.haproxy.open_at({"n:a"}, observed.workers) == {1: 3}
    assert site.haproxy.open_at({"n:b", "theirs"}, observed.workers) == {1: 0}
    assert site.haproxy.open_at((), observed.workers) == {}
    assert len(observed.idle_slots) == 63
    old = site.remote.processes[1]
    old.backends["gw-0002"] = {}
    old.waiting["gw-0002"] = 1
    assert len(site.converge(route("a"), route("b", 81)).idle_slots) == 62, "an old process still has a request in it"
    del old.maps[str(site.remote.state / KEYS)]  # of another version
    site.converge(route("a"), route("b", 81))
    site.remote.instead = lambda line: (
        "Out of memory.\n" if line.startswith(f"@!{old.pid} add server")
        else None
    )  # fmt: skip
    with pytest.raises(NotApplied, match=r"HAProxy answered 'Out of memory.' to: add server gw-0001/n:c"):
        site.converge(route("a"), route("b", 81), route("c", 82))


@pytest.mark.slow
def test_a_process_that_lacks_a_map_or_slots_is_reloaded_with_what_it_has_accepted_before(site: Site) -> None:
    site.converge(route("a"))
    first = site.remote.now.pid
    many = [route(f"c{at}", 1000 + at, service=f"shop/s{at}") for at in range(64)]
    site.remote.changed()
    site.remote.instead = site.see_files
    observed = site.converge(route("a"), *many)
    assert site.remote.changed()[0] == "reload"
    assert (site.remote.now.pid, len(site.remote.now.backends)) == (first + 1, 128)
    assert len(observed.servers) == 65
    assert all(server.ready for server in observed.servers.values())
    assert site.read_at_reload == ["n:a"], "a server that HAProxy has not accepted yet could keep it from starting"
    del site.remote.now.maps[str(site.remote.state / COPIES)]
    site.converge(route("a"), *many)
    assert site.remote.changed()[0] == "reload"
    del site.remote.processes[1:]  # they have finished their requests
    site.remote.changed()
    site.converge(route("a"), *many)
    assert site.remote.changed() == []


def test_a_reload_that_brings_no_process_is_an_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "RELOAD_SECONDS", 0.2)
    del site.remote.now.maps[str(site.remote.state / LIMITS)]
    site.remote.instead = lambda line: "Success=1\n" if line == "reload" else None
    with pytest.raises(NotApplied, match="HAProxy did not reload"):
        site.converge(route("a"))
    assert "n:a" in (site.remote.state / GENERATED).read_text(), "the next one will have it"


def test_processes_that_end_amid_a_change_are_looked_for_again_and_not_for_ever(site: Site) -> None:
    left = [2]

    def ends(line: str) -> str | None:
        if "show servers state" in line and left[0]:
            left[0] -= 1
            return ""
        return None

    site.remote.instead = ends
    assert site.converge(route("a")).servers["n:a"].ready
    left[0] = 2
    assert site.haproxy.observe(said(route("a"))).servers["n:a"].ready
    left[0] = 1000
    with pytest.raises(NotApplied, match="change faster than they can be configured"):
        site.converge(route("a"))
    assert left[0] == 1000 - rooms.MOST_ROUNDS
    with pytest.raises(HaproxyAway, match="change faster than they can be configured"):
        site.haproxy.observe(said(route("a")))
    assert left[0] == 1000 - 2 * rooms.MOST_ROUNDS


def test_a_server_that_haproxy_refuses_is_named_and_stops_no_other(site: Site) -> None:
    def refuses(line: str) -> str | None:
        return "Invalid address.\n" if "add server gw-0001/n:a " in line else None

    site.remote.instead = refuses
    with pytest.raises(ServersRefused, match=r"HAProxy refused 1 servers; n:a: .*Invalid address") as refused:
        site.converge(route("a"), route("b", 81))
    assert list(refused.value.refused) == ["n:a"]
    assert set(site.servers()) == {"n:b"}
    assert site.servers()["n:b"].admin == 0
    assert not [each for each in site.remote.changed() if each.startswith("set server gw-0001/n:a")]
    site.remote.instead = lambda line: "Refused.\n" if "set server gw-0001/n:b state" in line else None
    site.servers().clear()
    with pytest.raises(
        NotApplied, match=r"HAProxy answered 'Refused.' to: set server gw-0001/n:b state ready"
    ) as fault:
        site.converge(route("b", 81))
    assert not isinstance(fault.value, ServersRefused)
    site.remote.instead = lambda line: None
    site.converge(route("b", 81))
    site.remote.instead = lambda line: "no address\n" if " addr " in line else None
    with pytest.raises(ServersRefused, match=r"n:b: it stays at 10.0.0.1:81"):
        site.converge(route("b", 82))


def test_a_change_that_haproxy_accepts_and_does_not_make_is_an_error(site: Site) -> None:
    for part, message in [
        ("set map", "does not take the entries of"),
        ("add map", "does not take the entries of"),
        (f"add map {site.remote.state / SERVICES}", f"has not applied: the entries of {site.remote.state / SERVICES}"),
        ("state ready", "has not applied: set server gw-0001/n:a state ready"),
    ]:
        site.servers().clear()
        for name in (SERVICES, LIMITS, KEYS, PATHS):
            site.map(name).clear()
        if part == "set map":
            site.map(KEYS)[SERVICE] = "other"
        site.remote.instead = lambda line, part=part: "\n" if part in line else None  # type: ignore[misc]
        with pytest.raises(NotApplied, match=message):
            site.converge(route("a"), limits={SERVICE: ServiceLimit(7)})
    site.remote.instead = lambda line: None
    site.converge(route("a"))
    site.remote.instead = lambda line: "# pxname,svname,qcur,qmax,scur,smax,slim,stot,\n\n" if " 6 " in line else None
    with pytest.raises(HaproxyGarbled, match="leaves servers out of show stat"):
        site.haproxy.observe(said(route("a")))
    site.remote.instead = lambda line: "What?\n" if "fence" in line else None
    with pytest.raises(HaproxyGarbled, match="answered 'What"):
        site.haproxy.observe(said(route("a")))


def test_a_copy_of_another_kind_gets_no_request_that_waits(site: Site) -> None:
    kinds = [("GET /both", "POST /load"), ("GET /both",)]

    def of(*names: int) -> Desired:
        routes = tuple(RouteSpec("ab"[at], SERVICE, f"10.0.0.1:8{at}", paths=hash_rules(kinds[at])) for at in names)
        return give_slots(declare(Desired(), "n", DeclaredRoutes(1, routes, build_table(kinds))), idle=())

    assert site.haproxy.converge(of(0)).unfinished == 0
    site.remote.now.waiting[BACKEND] = 5
    observed = site.haproxy.converge(of(0, 1))
    assert [observed.servers[name].ready for name in ("n:a", "n:b")] == [True, False]
    assert observed.unfinished == 1
    assert site.haproxy.observe(of(0, 1)).unfinished == 1
    assert set(site.map(KEYS)[SERVICE].split(".")) == {hash_rules(each) for each in kinds}
    site.remote.now.waiting[BACKEND] = 0
    observed = site.haproxy.converge(of(0, 1))
    assert (observed.servers["n:b"].ready, observed.unfinished) == (True, 0)
    assert len(site.map(PATHS)) == 2
    site.haproxy.converge(of(1))
    assert set(site.map(KEYS)[SERVICE].split(".")) == {hash_rules(kinds[1])}
    assert len(site.map(PATHS)) == 1, "what only the copy that is gone admitted is gone, too"
    site.remote.now.waiting[BACKEND] = 5
    again = Haproxy(MasterSocket(site.remote.path), site.remote.state, "127.0.0.1:1")  # a sidecar that has just started
    assert not again.converge(of(0, 1)).servers["n:a"].ready, "it does not know what waits"


def test_the_master_is_asked_one_command_at_a_time_and_believed_where_its_answer_is_whole(site: Site) -> None:
    master = MasterSocket(site.remote.path)
    worker = master.workers()[0]
    assert master.ask("show info", worker).endswith("DroppedLogs: 0")
    for cut, command, of_worker in (("Pid: 1\n", "show info", True), ("Pid: 1", "del map x y", True)):
        site.remote.instead = lambda line, cut=cut: cut  # type: ignore[misc]
        with pytest.raises(WorkerGone, match="closed the connection"):
            master.ask(command, worker if of_worker else None)
    site.remote.instead = lambda line: "half"
    with pytest.raises(HaproxyAway, match="the master closed the connection"):
        master.ask("show proc")
    assert master.ask("reload") == "half", "the master ends as it starts itself again"
    site.remote.instead = lambda line: None
    with pytest.raises(WorkerGone, match="process 999 has ended"):
        master.ask("show info", type(worker)(999, old=False))
    assert site.remote.commands[-1] == "show info"
    site.remote.start_process()
    assert [worker.old for worker in master.workers()] == [False, True]
    for process in site.remote.processes:
        process.old = True
    with pytest.raises(HaproxyAway, match="no HAProxy process accepts connections"):
        master.workers()


def test_an_answer_without_an_end_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.gateway.haproxy.master_socket.MOST_BYTES", 1000)
    site.remote.instead = lambda line: "x" * 1001
    with pytest.raises(HaproxyAway, match="does not end"):
        MasterSocket(site.remote.path).ask("show proc")
    site.remote.instead = lambda line: "x" * 999 + "\n"
    assert MasterSocket(site.remote.path).ask("show proc") == "x" * 999
    with pytest.raises(HaproxyAway, match=r"does not end|timed out"):  # as the time ends while it reads, or before
        MasterSocket(site.remote.path, 1e-9).ask("show proc")


def test_the_servers_of_a_slot_are_those_of_its_service() -> None:
    state = said(route("a"), route("b", service="shop/other"))
    assert {slot: list(servers) for slot, servers in state.group_by_slot().items()} == {1: ["n:b"], 2: ["n:a"]}
    assert isinstance(state.group_by_slot()[1]["n:b"], HaproxyServer)
