"""Reads the addresses of copies: a literal IP address and a port, and none that leads where no copy can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

IpAddress: TypeAlias = IPv4Address | IPv6Address
IpNetwork: TypeAlias = IPv4Network | IPv6Network

# Translators would turn these into IPv4 addresses that were never checked.
TRANSLATED = (
    ip_network("64:ff9b::/96"),
    ip_network("64:ff9b:1::/48"),
    ip_network("2002::/16"),
    ip_network("2001::/32"),
)
# Clouds serve a machine's credentials here, besides the link-local addresses.
METADATA = (ip_address("fd00:ec2::254"), ip_address("100.100.100.200"), ip_address("168.63.129.16"))


class BadAddress(ValueError):
    """An address that is not HOST:PORT with a literal IP address."""


@dataclass(frozen=True, slots=True)
class CopyAddress:
    """The address of a copy. An IPv4 address is never written as IPv6, so that every program spells it alike."""

    host: IpAddress
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.host.version == 6 else f"{self.host}:{self.port}"


def parse_address(text: str) -> CopyAddress:
    """Parses `10.0.0.1:8000` or `[2001:db8::1]:8000`; raises BadAddress for anything else.

    A scope id (`%eth0`) means something on one machine only. `[::ffff:10.0.0.1]:80` is read as 10.0.0.1:80.
    """
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if "%" in host:
        raise BadAddress(f"address {text} names a network interface after %; allowed is an address without it")
    try:
        known = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        raise BadAddress(f"address {text} does not contain an IP address") from None
    if (known.version == 6) != bracketed or not is_port(port):
        raise BadAddress(f"address {text} is not HOST:PORT with a port of 1..65535")
    return CopyAddress(unwrap(known), int(port))


def unwrap(host: IpAddress) -> IpAddress:
    """Returns the IPv4 address within `::ffff:10.0.0.1`; any other address as it is."""
    return (host.ipv4_mapped if isinstance(host, IPv6Address) else None) or host


def is_port(text: str) -> bool:
    """Returns whether this is a port of 1..65535."""
    return text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535


def find_objection(address: CopyAddress, networks: Sequence[IpNetwork] = ()) -> str:
    """Returns why no copy is reached at this address; empty if it may be. `networks`: only these, if there are any."""
    host = address.host
    if host.is_loopback:
        kind = ""
    elif host.is_link_local or host in METADATA:
        kind = "where a machine is given its credentials"
    elif host.is_unspecified or host.is_multicast or host.is_reserved:
        kind = "an address that no machine has"
    elif any(host in network for network in TRANSLATED if network.version == host.version):
        kind = "an IPv4 address in another form"
    else:
        kind = ""
    if kind:
        return f"{address} cannot be the address of a node: it is {kind}"
    if networks and not any(host in network for network in networks if network.version == host.version):
        return f"{address} is outside the networks of copies"
    return ""


def parse_networks(text: str) -> tuple[IpNetwork, ...]:
    """Parses addresses and networks separated by commas; raises ValueError."""
    return tuple(ip_network(word.strip()) for word in text.split(",") if word.strip())
