"""What sources say becomes servers in slots: scaled, named apart, kept over restarts, and stale words refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from agents.gateway import desired, state_file
from agents.gateway.balances import FIRST_SLOTS, Balance, balance_of
from agents.gateway.desired import (
    FOLLOWED,
    MOST_SOURCES,
    Desired,
    HaproxyServer,
    Malformed,
    Stale,
    declare,
    follow,
    give_slots,
    server_name,
)
from agents.gateway.haproxy import configuration, files
from agents.gateway.haproxy.changes import (
    closing_commands,
    find_differences,
    map_additions,
    map_removals,
    opening_commands,
)
from agents.gateway.haproxy.configuration import render_base
from agents.gateway.haproxy.parsing import ServerState
from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit
from agents.host import durable

ROOT = Path(__file__).parents[3]


def route(copy: str, service: str = "a/b", weight: float = 1, drained: bool = False) -> RouteSpec:
    return RouteSpec(copy, service, "127.0.0.1:9001", weight, drained)


def said(*routes: RouteSpec, sequence: int = 1, source: str = "node-1", before: Desired | None = None) -> Desired:
    return give_slots(declare(before or Desired(), source, DeclaredRoutes(sequence, routes)), idle=())


def weights(state: Desired) -> dict[str, int]:
    return {server.name: server.weight for server in state.servers()}


def test_rates_are_scaled_by_service_over_all_sources_and_drained_copies_do_not_count() -> None:
    state = said(route("x", weight=1e6, drained=True), route("y", weight=50), route("z", "c/d", weight=1e-9))
    state = said(route("x", weight=200), route("tiny", weight=1e-9), source="node-2", before=state)
    assert weights(state) == {
        "node-1:x": 0, "node-1:y": 64, "node-1:z": 256, "node-2:x": 256, "node-2:tiny": 1,
    }  # fmt: skip


def test_names_of_copies_stay_apart_whatever_they_are_made_of() -> None:
    copies = ["a/b", "a_b", "a_2fb", "a:b", "a.b", "a-b", "a%b", "a b".replace(" ", "~"), "!#$"]
    names = {server_name("node-1", copy) for copy in copies}
    assert len(names) == len(copies)
    assert all(sign.isalnum() or sign in "-_.:" for name in names for sign in name)


def test_a_lower_sequence_is_stale_and_so_is_the_same_one_with_other_routes() -> None:
    state = said(route("x"), sequence=5)
    assert declare(state, "node-1", DeclaredRoutes(5, (route("x"),))) == state
    for stale in (DeclaredRoutes(4, (route("x"),)), DeclaredRoutes(5, ())):
        with pytest.raises(Stale) as caught:
            declare(state, "node-1", stale)
        assert caught.value.sequence == 5
    assert declare(state, "node-2", DeclaredRoutes(1)).sources.keys() == {"node-1", "node-2"}


@pytest.mark.parametrize(
    "address", ["127.0.0.1", ":80", "::1:80", "[127.0.0.1]:80", "host:80", "127.0.0.1:080x", "[::1]:0"]
)
def test_an_address_is_literal_and_has_a_port(address: str) -> None:
    with pytest.raises(Malformed):
        desired.split_address(address)


def test_addresses_are_read_in_both_families() -> None:
    assert desired.split_address("10.0.0.5:80") == ("10.0.0.5", 80)
    assert desired.split_address("[2001:DB8::1]:8000") == ("2001:db8::1", 8000)


def test_a_slot_changes_hands_only_when_none_is_free_and_nothing_is_in_it() -> None:
    full = said(*(route(f"c{index}", f"a/s{index:03d}") for index in range(FIRST_SLOTS)))
    emptied = declare(full, "node-1", DeclaredRoutes(2, (route("new", "a/new"),)))
    assert give_slots(emptied, idle=()).slot_count == 2 * FIRST_SLOTS
    reused = give_slots(emptied, idle={7, 9})
    assert (reused.slot_count, reused.slots["a/new"], "a/s006" in reused.slots) == (FIRST_SLOTS, 7, False)
    assert give_slots(declare(full, "node-1", DeclaredRoutes(2)), idle={7}).slots == full.slots


def test_no_two_services_share_a_slot_however_many_language_models_there_are() -> None:
    models = {f"lab/m{at:02d}": ServiceLimit(tpot_ms=50.0, by_prefix=at % 2 == 0) for at in range(24)}
    others = said(*(route(f"c{index}", f"a/s{index:03d}") for index in range(20)))
    slots = give_slots(follow(others, {}, models), idle=()).slots
    assert len(slots) == len({*slots.values()}) == 44
    assert sum(balance_of(slots[name]) is Balance.PREFIX for name in models) == 8
    assert sum(balance_of(slots[name]) is Balance.LEAST_TOKENS for name in models) == 8, "the rest has what is left"


def test_sources_have_an_end_but_those_that_are_followed_do_not_count() -> None:
    sources = {f"{FOLLOWED if at % 2 else ''}n{at}": DeclaredRoutes(1) for at in range(2 * MOST_SOURCES)}
    full = Desired(sources=sources)
    with pytest.raises(Malformed, match=f"there are {MOST_SOURCES} sources already"):
        declare(full, "another", DeclaredRoutes(1))
    assert declare(full, "n0", DeclaredRoutes(2)).sources["n0"].sequence == 2


def test_a_refusal_is_kept_as_long_as_its_route_is_declared_and_leaves_out_no_other() -> None:
    state = said(route("x"), route("y"))
    assert desired.refuse(state, {}).refused == {}
    refused = desired.refuse(state, {"node-1:x": "no", "node-9:z": "no"})
    key = desired.RouteKey("node-1", "x", "127.0.0.1:9001")
    assert refused.refused == {key: "no"}
    assert weights(refused) == {"node-1:y": 256}
    assert [(each.node, each.copy, each.reason) for each in refused.left_out()] == [("node-1", "x", "no")]
    assert desired.refuse(refused, {"node-1:y": "either"}).refused.keys() == {
        key, desired.RouteKey("node-1", "y", "127.0.0.1:9001"),
    }  # fmt: skip
    again = declare(refused, "node-1", DeclaredRoutes(2, (route("x"),)))
    assert (again.refused, again.servers()) == ({key: "no"}, ())
    moved = RouteSpec("x", "a/b", "127.0.0.1:9002")
    assert declare(refused, "node-1", DeclaredRoutes(2, (moved,))).refused == {}
    assert follow(refused, {}, {}).refused == {key: "no"}


def test_a_node_that_declares_nothing_is_spoken_for_and_its_weights_count_from_one_to_256() -> None:
    elsewhere = RouteSpec("f", "a/b", "127.0.0.2:9001", 1e-9)
    followed = {f"{FOLLOWED}node-1": DeclaredRoutes(0, (elsewhere, route("g", weight=1e9)))}
    assert weights(give_slots(follow(said(route("x")), followed, {}), idle=())) == {"node-1:x": 256}
    state = give_slots(follow(declare(Desired(), "node-1", DeclaredRoutes(1)), followed, {}), idle=())
    assert weights(state) == {"_node-1:f": 1, "_node-1:g": 256}
    assert {server.most_open for server in replace(state, most_open={"_node-1:f": 7}).servers()} == {7, 512}
    assert {server.most_open for server in replace(state, most_open={"_node-1:f": 999}).servers()} == {512}


def test_what_was_said_survives_a_restart(tmp_path: Path) -> None:
    state = said(route("x", weight=2.5), route("y", drained=True))
    state_file.keep(tmp_path / "desired.json", state)
    assert state_file.read(tmp_path / "desired.json") == state
    assert state_file.read(tmp_path / "none") == Desired()


# What is told to HAProxy


SERVER = HaproxyServer("n:a", "n", "a", "a/b", "10.0.0.5", 80, 256, False)
DRAINED = HaproxyServer("n:b", "n", "b", "a/b", "10.0.0.6", 80, 0, True)
SEEN = ServerState("10.0.0.5", 80, 256, 0, 2)


def commands(wanted: list[HaproxyServer], seen: dict[str, ServerState]) -> list[str]:
    backends = {"gw-0001": {server.name: server for server in wanted}}
    steps = (*opening_commands(backends, {"gw-0001": seen}), *closing_commands(backends, {"gw-0001": seen}))
    return [step.command for step in steps]


def test_nothing_is_said_when_all_is_as_it_shall_be() -> None:
    assert commands([SERVER], {"n:a": SEEN}) == []


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (ServerState("10.0.0.5", 80, 99, 0, 2), ["weight 256"]),
        (ServerState("10.0.0.5", 80, 256, 1, 2), ["state ready", "enable health gw-0001/n:a"]),
        (ServerState("10.0.0.5", 81, 256, 0, 2), ["addr 10.0.0.5 port 80"]),
        (
            ServerState("10.0.0.4", 80, 0, 8, 2),
            ["addr 10.0.0.5 port 80", "weight 256", "state ready", "enable health gw-0001/n:a"],
        ),
    ],
)
def test_what_differs_is_said(seen: ServerState, told: list[str]) -> None:
    found = [line for line in commands([SERVER], {"n:a": seen}) if not line.startswith("del server")]
    assert [line.removeprefix("set server gw-0001/n:a ") for line in found] == told


def test_an_address_of_ipv6_is_in_brackets() -> None:
    server = replace(SERVER, host="2001:db8::1")
    assert commands([server], {})[0].startswith("add server gw-0001/n:a [2001:db8::1]:80 weight 256 ")


def test_what_opens_is_said_before_what_closes() -> None:
    told = commands([SERVER, DRAINED], {"n:b": ServerState("10.0.0.6", 80, 256, 0, 2), "n:c": SEEN})
    assert [" ".join(line.split()[:2] + line.split()[3:5]) for line in told] == [
        "add server 10.0.0.5:80 weight",
        "enable health",
        "set server state ready",
        "set server state drain",
        "set server weight 0",
        "set server state maint",
        "del server",
    ]
    assert told[-1] == "del server gw-0001/fence"


def test_a_copy_that_is_added_drained_gets_nothing() -> None:
    assert commands([DRAINED], {})[-1] == "set server gw-0001/n:b state drain"
    assert "weight 0" in commands([DRAINED], {})[0]


def test_a_server_that_waits_to_be_deleted_is_in_force() -> None:
    gone = {"gw-0001": {"n:a": ServerState("10.0.0.5", 80, 256, 1, 0)}}
    assert find_differences({}, gone) == ()
    assert find_differences({}, {"gw-0001": {"n:a": SEEN}}) == ("set server gw-0001/n:a state maint",)


def test_a_map_is_brought_about_by_its_differences() -> None:
    wanted, seen = {"a/b": "gw-0001", "c/d": "gw-0002"}, {"c/d": "gw-0009", "e/f": "gw-0003"}
    assert [step.command for step in map_removals("m", wanted, seen)] == ["del map m e/f"]
    assert [step.command for step in map_additions("m", wanted, seen)] == [
        "add map m a/b gw-0001",
        "set map m c/d gw-0002",
    ]


# Files


def test_the_base_that_ships_and_the_one_in_the_documentation_are_what_the_command_prints() -> None:
    text = render_base(Path("/var/lib/gpuwright-gateway"), "127.0.0.1:9514", ":80")
    assert (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text() == text
    assert text in (ROOT / "docs" / "gateway.md").read_text()


def test_each_slot_has_the_rule_of_its_place_and_all_it_needs() -> None:
    slots = range(1, 2 * FIRST_SLOTS + 1)
    places = [[balance_of(slot) for slot in slots][at::FIRST_SLOTS] for at in range(FIRST_SLOTS)]
    assert places == [[Balance.IN_TURN] * 2] * 48 + [[Balance.LEAST_TOKENS] * 2] * 8 + [[Balance.PREFIX] * 2] * 8
    limits = {"a/prefix": ServiceLimit(tpot_ms=1.0, by_prefix=True), "a/tokens": ServiceLimit(tpot_ms=1.0)}
    routes = (route("p", "a/prefix"), route("q", "a/prefix"), route("t", "a/tokens"), route("x", "a/z"))
    state = give_slots(follow(declare(Desired(), "n", DeclaredRoutes(1, routes)), {}, limits), idle=())
    _, *backends = configuration.render_generated(state, Path("/f"), "127.0.0.1:1").split("\nbackend gw-0")
    assert len(backends) == FIRST_SLOTS
    for slot, text in enumerate(backends, 1):
        rule = balance_of(slot)
        assert text.startswith(f"{slot:03d} from gpuwright\n    balance {rule.value}\n")
        assert [line.split()[1] for line in text.splitlines() if " acl by_key_" in line] == [
            f"by_key_{number}" for number in range(1, 9)
        ]
        assert " if by_key_1 by_key_2 by_key_3 by_key_4 by_key_5 by_key_6 by_key_7 by_key_8\n" in text
        assert ("hash-balance-factor" in text) is (rule is Balance.PREFIX)
        assert ("gpuwright-choose" in text) is (rule is Balance.LEAST_TOKENS)
        for server in state.group_by_slot().get(slot, {}).values():
            (line,) = [line for line in text.splitlines() if f"    server {server.name} " in line]
            assert bool(re.search(r" id [1-9][0-9]*$", line)) is (rule is Balance.PREFIX)
    assert len(state.group_by_slot()) == 3
    assert (
        len({each.split(" id ")[1].split()[0] for text in backends for each in text.splitlines() if " id " in each})
        == 2
    )
    assert configuration.render_limit(ServiceLimit()) == configuration.NO_LIMIT == "0:2000000000:2:0"


def test_files_are_written_so_that_no_process_finds_a_service_in_the_slot_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = durable.write_changed, list[tuple[str, str]]()

    def note(path: Path, data: bytes, mode: int) -> None:
        written.append((path.name, data.decode()))
        write(path, data, mode)

    monkeypatch.setattr(durable, "write_changed", note)
    first = said(route("x"), route("y", "c/d"))
    (tmp_path / "limits-of-before.map").write_text("")
    files.write_files(tmp_path, first, "127.0.0.1:1")
    names = {"gpuwright.cfg", "services.map", "copies.map", "paths.map", "keys.map", "tokens.lua", "balance.lua"}
    assert {path.name for path in tmp_path.iterdir()} == names | {configuration.LIMITS}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}
    services = (tmp_path / "services.map").read_text()
    assert services == "a/b gw-0001\nc/d gw-0002\n"
    (tmp_path / "keys.map").write_text("c/d a.a\ngone/x b.b\n")
    written.clear()
    swapped = replace(said(route("y", "c/d"), route("z", "new/one")), slots={"c/d": 1, "new/one": 2})
    files.write_files(tmp_path, swapped, "127.0.0.1:1")
    assert [data for name, data in written if name == "services.map"] == ["", "c/d gw-0001\nnew/one gw-0002\n"]
    order = [name for name, _ in written]
    assert order.index("services.map") < order.index("gpuwright.cfg") < len(order) - order[::-1].index("services.map")
    narrowed, keys = [data for name, data in written if name == "keys.map"]
    known = {line.split()[0]: set(line.split()[1].split(".")) for line in narrowed.splitlines()}
    (key,) = known["new/one"]
    assert known == {"c/d": {"a", key}, "gone/x": {"b"}, "new/one": {key}}, "what was admitted before and is after"
    assert {line.split()[0] for line in keys.splitlines()} == {"c/d", "new/one"}
    written.clear()
    files.write_files(tmp_path, swapped, "127.0.0.1:1")
    assert [name for name, _ in written].count("services.map") == 1, "no service has lost its slot"
    assert [data for name, data in written if name == "keys.map"] == [keys, keys]


def test_a_server_stands_in_the_file_in_the_words_of_the_runtime_command() -> None:
    text = configuration.render_generated(said(route("x")), Path("/f"), "127.0.0.1:1")
    [line] = [line for line in text.splitlines() if "node-1:x" in line]
    [server] = said(route("x")).servers()
    assert line == f"    server node-1:x {configuration.server_arguments(server, 'gw-0001')}"
    assert text.count("\nbackend gw-0") == FIRST_SLOTS
