"""Decides by token which source a caller may speak for, and which addresses and services it may declare."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

from agents.gateway.desired import split_address
from agents.gateway.wire import DeclaredRoutes

SERVICES = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/([a-z0-9]([-a-z0-9]*[a-z0-9])?|\*)")
ANY = "*"  # a token that may speak for every source

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Caller:
    """The rights of a token. Without networks it allows every address, without services every service."""

    source: str = ANY
    networks: tuple[Network, ...] = ()
    services: frozenset[str] = frozenset()  # tenant/name, or tenant/*

    def speaks_for(self, source: str) -> bool:
        return self.source in (ANY, source)

    def objection(self, declared: DeclaredRoutes) -> str:
        """Returns why the token does not allow this declaration; empty if it does."""
        for route in declared.routes:
            tenant = route.service.partition("/")[0]
            if self.services and not self.services & {route.service, f"{tenant}/{ANY}"}:
                return f"this token may not declare service {route.service}"
            if self.networks:
                host = ipaddress.ip_address(split_address(route.address)[0])
                if not any(host in network for network in self.networks):
                    return f"this token may not declare address {route.address}"
        return ""


def parse_callers(text: str) -> dict[str, Caller]:
    """Parses callers by token. A line is `SOURCE TOKEN [ADDRESS|NETWORK|TENANT/NAME|TENANT/*]...`; SOURCE may be `*`,
    and a token alone means `*`."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        source, token, *allowed = words if len(words) > 1 else (ANY, *words)
        networks, services = [], set()
        for word in allowed:
            try:
                networks.append(ipaddress.ip_network(word))
            except ValueError:
                if not SERVICES.fullmatch(word):
                    raise ValueError(f"{word!r} is neither an address, nor a network, nor TENANT/NAME") from None
                services.add(word)
        found[token] = Caller(source, tuple(networks), frozenset(services))
    if not found:
        raise ValueError("the token file has no token")
    return found


def find_caller(callers: Mapping[str, Caller], token: str) -> Caller | None:
    """Returns the token's caller; takes as long for a nearly right token as for any other."""
    given = token.encode("latin-1")
    return next((caller for known, caller in callers.items() if hmac.compare_digest(known.encode(), given)), None)
