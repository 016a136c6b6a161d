"""What to say to one process of HAProxy so that it does what is desired: first all that opens, then all that closes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agents.gateway.configuration import arguments
from agents.gateway.desired import HaproxyServer
from agents.gateway.parsing import DRAIN, MAINT_BITS, ServerState

ADDED = "New server registered."
DELETED = "Server deleted."
ATTACHED = "Server still has connections attached to it, cannot remove it."
NO_SERVER = "No such server."
NO_BACKEND = "No such backend."
DISABLED = "Proxy is disabled."  # of a process that finishes what it has
NO_MAP = "Unknown map identifier."
ANYTHING = "*"  # proved by reading back

Backends = Mapping[str, Mapping[str, HaproxyServer]]
SeenBackends = Mapping[str, Mapping[str, ServerState]]


@dataclass(frozen=True, slots=True)
class HaproxyCommand:
    """One command, and what HAProxy answers when it did it."""

    command: str
    expects: tuple[str, ...] = ("",)


def opening(wanted: Backends, seen: SeenBackends) -> tuple[HaproxyCommand, ...]:
    """Servers that are missing, or not as they shall be, but for those that get nothing new."""
    steps: list[HaproxyCommand] = []
    for backend, servers in wanted.items():
        for name, server in servers.items():
            found = seen.get(backend, {}).get(name)
            place = f"{backend}/{name}"
            if found is None:
                steps.append(HaproxyCommand(f"add server {place} {arguments(server)}", (ADDED,)))
                steps.append(HaproxyCommand(f"enable health {place}"))
                steps.append(HaproxyCommand(f"set server {place} state {'drain' if server.drained else 'ready'}"))
                continue
            if (found.host, found.port) != (server.host, server.port):
                steps.append(HaproxyCommand(f"set server {place} addr {server.host} port {server.port}", (ANYTHING,)))
            if server.drained:
                continue
            if found.weight != server.weight:
                steps.append(HaproxyCommand(f"set server {place} weight {server.weight}"))
            if found.admin:
                steps.append(HaproxyCommand(f"set server {place} state ready"))
                steps.append(HaproxyCommand(f"enable health {place}"))
    return tuple(steps)


def closing(wanted: Backends, seen: SeenBackends) -> tuple[HaproxyCommand, ...]:
    """Servers that get nothing new, and those that are nobody's any more."""
    steps: list[HaproxyCommand] = []
    for backend, servers in seen.items():
        for name, found in servers.items():
            server = wanted.get(backend, {}).get(name)
            place = f"{backend}/{name}"
            if server is None:
                if not backend.startswith("gw-") or ":" not in name:
                    continue  # an operator's own
                if not found.admin & MAINT_BITS:
                    steps.append(HaproxyCommand(f"set server {place} state maint"))
                steps.append(HaproxyCommand(f"del server {place}", (DELETED, ATTACHED)))
            elif server.drained:
                if found.admin != DRAIN:
                    steps.append(HaproxyCommand(f"set server {place} state drain"))
                if found.weight:
                    steps.append(HaproxyCommand(f"set server {place} weight 0"))
    if steps:
        # Waits until no thread is amid a choice made before: what is open from here on is all there is.
        steps.append(HaproxyCommand(f"del server {next(iter(seen))}/fence", (NO_SERVER,)))
    return tuple(steps)


def differences(wanted: Backends, seen: SeenBackends) -> tuple[str, ...]:
    """What is not in force; a server that only waits for its last request to be deleted is."""
    steps = opening(wanted, seen) + closing(wanted, seen)
    return tuple(step.command for step in steps if not step.command.startswith("del server "))


def map_opening(path: str, wanted: Mapping[str, str], seen: Mapping[str, str]) -> tuple[HaproxyCommand, ...]:
    steps = [HaproxyCommand(f"add map {path} {key} {value}") for key, value in wanted.items() if key not in seen]
    wrong = [key for key in wanted if key in seen and seen[key] != wanted[key]]
    return (*steps, *(HaproxyCommand(f"set map {path} {key} {wanted[key]}") for key in wrong))


def map_closing(path: str, wanted: Mapping[str, str], seen: Mapping[str, str]) -> tuple[HaproxyCommand, ...]:
    """Services that have lost their slot."""
    return tuple(HaproxyCommand(f"del map {path} {key}") for key in seen if key not in wanted)


def map_entries(path: str, wanted: Mapping[str, str], seen: Mapping[str, str]) -> tuple[HaproxyCommand, ...]:
    """A map's entries, where no order matters."""
    return map_closing(path, wanted, seen) + map_opening(path, wanted, seen)
