"""Addresses of copies: one spelling for every program, and none that points where no copy can be."""

from __future__ import annotations

import pytest

from agents.contract.addresses import BadAddress, find_objection, parse_address, parse_networks

HOSTILE = [
    "[2001:db8::1%;x]:80",
    "[2001:db8::1%x]:80",
    "[fe80::1%eth0]:80",
    "10.0.0.5%x:80",
    "10.0.0.5;quit:80",
    "10.0.0.5:80;quit",
    "10.0.0.5:080x",
    "10.0.0.5:0",
    "10.0.0.5:65536",
    "10.0.0.5:000000000000080",
    "10.0.0.05:80",
    "[10.0.0.5]:80",
    "2001:db8::1:80",
    "host:80",
    ":80",
    "",
]


@pytest.mark.parametrize("address", HOSTILE)
def test_case_23_an_address_that_programs_read_differently_is_refused(address: str) -> None:
    with pytest.raises(BadAddress):
        parse_address(address)


@pytest.mark.parametrize("address", ["[::ffff:10.0.0.5]:80", "[::ffff:a00:5]:80", "10.0.0.5:80"])
def test_an_ipv4_address_has_one_spelling(address: str) -> None:
    assert str(parse_address(address)) == "10.0.0.5:80"


def test_an_ipv6_address_has_one_spelling() -> None:
    assert str(parse_address("[2001:DB8:0::1]:8000")) == "[2001:db8::1]:8000"


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0:80",
        "[::]:80",
        "224.0.0.1:80",
        "[ff02::1]:80",
        "255.255.255.255:80",
        "240.0.0.1:80",
        "169.254.169.254:80",
        "[fe80::1]:80",
        "[::ffff:169.254.169.254]:80",
        "[fd00:ec2::254]:80",
        "100.100.100.200:80",
        "[64:ff9b::a9fe:a9fe]:80",  # 169.254.169.254 behind a translator
        "[2002:a9fe:a9fe::]:80",
        "[::a9fe:a9fe]:80",
    ],
)
def test_case_23_no_address_leads_where_no_copy_can_be(address: str) -> None:
    assert find_objection(parse_address(address))


@pytest.mark.parametrize("address", ["10.0.0.5:80", "192.168.1.7:18000", "8.8.8.8:443", "[2001:4860::1]:80"])
def test_private_and_public_addresses_are_allowed_without_networks(address: str) -> None:
    assert find_objection(parse_address(address)) == ""


def test_networks_limit_the_addresses() -> None:
    networks = parse_networks("10.1.0.0/16, fd12::/16")
    assert find_objection(parse_address("10.1.2.3:80"), networks) == ""
    assert find_objection(parse_address("[fd12::7]:80"), networks) == ""
    assert "outside the networks" in find_objection(parse_address("10.2.0.1:80"), networks)
    assert "outside the networks" in find_objection(parse_address("[::ffff:10.2.0.1]:80"), networks)
