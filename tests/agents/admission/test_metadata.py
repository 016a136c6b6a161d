"""The cloud's metadata address is blocked for users' own programs, tried in a network of the test's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.admission import metadata
from agents.admission.metadata import ADDRESSES, OWN_BRIDGE, MetadataWall, rules, why_no_rule
from agents.devices.simulated.remote import Switches
from agents.run.opening import AgentOptions, open_node
from tests.agents.admission.lists import write_list
from tests.support.needs import need, need_root, skip_unless_ci

USER = 20001
SILENT = ("127.93.11.7",)  # nothing serves there
CLOUD, NODE, COPY = (f"{name}-{os.getpid()}" for name in ("gw-cloud", "gw-node", "gw-copy"))  # networks; CLOUD answers
OPENED, REFUSED = 0, 1
PYTHON = "/usr/bin/python3"  # which every user can run
TRY = "import socket, sys; socket.create_connection((sys.argv[1], 8080), 3).close()"
SERVE = (
    "import socket; s = socket.create_server(('::', 8080), family=socket.AF_INET6, dualstack_ipv6=True)\n"
    "print('up', flush=True)\nwhile True: s.accept()[0].close()"
)
LINKED = f"""
ip netns add {CLOUD} && ip netns add {NODE} && ip netns add {COPY}
ip link add up0 netns {NODE} type veth peer name up1 netns {CLOUD}
ip link add in0 netns {NODE} type veth peer name in1 netns {COPY}
ip -n {NODE} link add {OWN_BRIDGE} type bridge
ip -n {NODE} link set in0 master {OWN_BRIDGE}
for at in "{CLOUD} up1" "{NODE} up0" "{NODE} in0" "{NODE} {OWN_BRIDGE}" "{COPY} in1" "{CLOUD} lo"; do
  ip -n ${{at% *}} link set ${{at#* }} up
done
ip -n {CLOUD} addr add 10.9.1.2/24 dev up1 && ip -n {NODE} addr add 10.9.1.1/24 dev up0
ip -n {NODE} addr add 10.9.2.1/24 dev {OWN_BRIDGE} && ip -n {COPY} addr add 10.9.2.2/24 dev in1
ip -n {CLOUD} addr add {ADDRESSES[0]}/32 dev lo && ip -n {CLOUD} route add 10.9.2.0/24 via 10.9.1.1
ip -n {NODE} route add {ADDRESSES[0]} via 10.9.1.2 && ip -n {COPY} route add default via 10.9.2.1
ip -n {CLOUD} addr add fd09::2/64 dev up1 nodad && ip -n {NODE} addr add fd09::1/64 dev up0 nodad
ip -n {CLOUD} addr add {ADDRESSES[1]}/128 dev lo nodad && ip -n {NODE} route add {ADDRESSES[1]} via fd09::2
ip netns exec {NODE} sysctl -qw net.ipv4.ip_forward=1
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[None]:
    need_root("to make networks")
    need("ip", "iproute2")
    need("nft", "nftables")
    if subprocess.run([PYTHON, "-c", ""], capture_output=True, user=USER).returncode:
        skip_unless_ci(f"the user {USER} cannot run {PYTHON}")
    try:
        made = subprocess.run(["sh", "-ec", LINKED], capture_output=True, text=True)
        if made.returncode != 0:
            skip_unless_ci(f"no networks can be made here: {made.stderr.strip()[-300:]}")
        command = ["ip", "netns", "exec", CLOUD, PYTHON, "-c", SERVE]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline() == "up\n"
                yield
            finally:
                server.kill()
    finally:
        for network in (CLOUD, NODE, COPY):
            subprocess.run(["ip", "netns", "delete", network], capture_output=True)


def reach(network: str, address: str, user: int = 0) -> int:
    tried = ["setpriv", f"--reuid={user}", "--clear-groups", PYTHON, "-c", TRY, address]
    return subprocess.run(["ip", "netns", "exec", network, *tried], capture_output=True).returncode


def put_in_force(runtime: str, times: int = 2) -> None:
    for _ in range(times):  # a second agent, or a later look, changes nothing
        table = rules(runtime, USER)
        subprocess.run(["ip", "netns", "exec", NODE, "nft", "-f", "-"], input=table, text=True, check=True)


@pytest.mark.slow
def test_a_users_command_cannot_reach_either_address_and_others_can(cloud: None) -> None:
    assert [reach(NODE, address, USER) for address in ADDRESSES] == [OPENED, OPENED]
    put_in_force("process")
    assert [reach(NODE, address, USER) for address in ADDRESSES] == [REFUSED, REFUSED]
    assert [reach(NODE, address) for address in ADDRESSES] == [OPENED, OPENED], "the machine's own services"
    assert reach(NODE, "10.9.1.2", USER) == OPENED, "other addresses"


@pytest.mark.slow
def test_a_container_cannot_reach_the_address_even_where_the_node_translates_it(cloud: None) -> None:
    assert reach(COPY, ADDRESSES[0]) == OPENED
    put_in_force("docker")
    assert reach(COPY, ADDRESSES[0]) == REFUSED
    chain = f"type nat hook prerouting priority dstnat; ip daddr {ADDRESSES[0]} dnat to 10.9.1.2;"
    table = f"table ip other {{ chain c {{ {chain} }}; }}"
    subprocess.run(["ip", "netns", "exec", NODE, "nft", "-f", "-"], input=table, text=True, check=True)
    assert reach(COPY, ADDRESSES[0]) == REFUSED
    assert reach(COPY, "10.9.1.2") == OPENED, "other addresses"


def test_a_node_that_cannot_block_it_says_why() -> None:
    wall = MetadataWall("process", None, shares_reach=False)
    state = wall.state()
    assert not state.blocked
    assert state.message.startswith("own images and commands may reach 169.254.169.254, fd00:ec2::254: ")
    assert state.message.endswith(why_no_rule("process", None))
    assert wall.state() is state, "the next look is due in five minutes"


@pytest.mark.slow
def test_an_agent_tries_in_its_copies_place_however_the_list_names_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: USER)
    monkeypatch.setattr(metadata, "ADDRESSES", SILENT)
    found = []
    for user in ("agent", str(USER)):
        (tmp_path / user).mkdir()
        path = write_list(tmp_path / user, user=f"user: {user}")
        options = AgentOptions(tmp_path / user / "node", device="simulated", simulated_gpus=1, allow_list=path)
        try:
            wall = open_node(options).metadata
            assert wall is not None
            found.append(wall.state().blocked)
        finally:
            Switches(options.folder / "simulated").quit()
    assert found == [True, True]
