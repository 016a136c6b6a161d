"""Lists the commands that bring one HAProxy process to what is desired: what opens, what closes, then what deletes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agents.gateway.desired import HaproxyServer
from agents.gateway.haproxy.configuration import server_arguments
from agents.gateway.haproxy.parsing import DRAIN, MAINT_BITS, ServerLoad, ServerState

ADDED = "New server registered."
DELETED = "Server deleted."
ATTACHED = "Server still has connections attached to it, cannot remove it."
NO_SERVER = "No such server."
NO_BACKEND = "No such backend."
DISABLED = "Proxy is disabled."  # from a process that finishes its requests
NO_MAP = "Unknown map identifier."
ANYTHING = "*"  # checked by reading back

Backends = Mapping[str, Mapping[str, HaproxyServer]]
ObservedBackends = Mapping[str, Mapping[str, ServerState]]
Place = tuple[str, str]  # a backend, and a server of it


@dataclass(frozen=True, slots=True)
class HaproxyCommand:
    """One command, and HAProxy's answers that mean success."""

    command: str
    expects: tuple[str, ...] = ("",)
    server: str = ""  # the one that it is about, while that opens
    adds: bool = False  # HAProxy refuses the server if it refuses this


def opening_commands(wanted: Backends, current: ObservedBackends) -> tuple[HaproxyCommand, ...]:
    """Returns commands for servers that are missing or differ, except closing drained ones."""
    steps: list[HaproxyCommand] = []
    for backend, servers in wanted.items():
        for name, server in servers.items():
            found = current.get(backend, {}).get(name)
            place = f"{backend}/{name}"
            if found is None:
                steps.append(
                    HaproxyCommand(f"add server {place} {server_arguments(server, backend)}", (ADDED,), name, True)
                )
                steps.append(HaproxyCommand(f"enable health {place}", server=name))
                state = "drain" if server.drained else "ready"
                steps.append(HaproxyCommand(f"set server {place} state {state}", server=name))
                continue
            if (found.host, found.port) != (server.host, server.port):
                command = f"set server {place} addr {server.host} port {server.port}"
                steps.append(HaproxyCommand(command, (ANYTHING,), name))
            if server.drained:
                continue
            if found.weight != server.weight:
                steps.append(HaproxyCommand(f"set server {place} weight {server.weight}"))
            if found.admin:
                steps.append(HaproxyCommand(f"set server {place} state ready"))
                steps.append(HaproxyCommand(f"enable health {place}"))
    return tuple(steps)


def closing_commands(wanted: Backends, current: ObservedBackends) -> tuple[HaproxyCommand, ...]:
    """Returns commands that drain servers, and close those no longer wanted."""
    steps: list[HaproxyCommand] = []
    for backend, servers in current.items():
        for name, found in servers.items():
            server = wanted.get(backend, {}).get(name)
            place = f"{backend}/{name}"
            if server and server.drained:
                if found.admin != DRAIN:
                    steps.append(HaproxyCommand(f"set server {place} state drain"))
                if found.weight:
                    steps.append(HaproxyCommand(f"set server {place} weight 0"))
    for backend, name in list_unwanted(wanted, current):
        if not current[backend][name].admin & MAINT_BITS:
            steps.append(HaproxyCommand(f"set server {backend}/{name} state maint"))
    if steps:
        # Waits until no thread is still choosing a server by the old state: open requests are complete from here on.
        steps.append(HaproxyCommand(f"del server {next(iter(current))}/fence", (NO_SERVER,)))
    return tuple(steps)


def list_unwanted(wanted: Backends, current: ObservedBackends) -> list[Place]:
    """Returns the servers that are no longer wanted; those of the operator stay."""
    return [
        (backend, name)
        for backend, servers in current.items()
        for name in servers
        if backend.startswith("gw-") and ":" in name and name not in wanted.get(backend, {})
    ]


def deleting_commands(places: Iterable[Place]) -> tuple[HaproxyCommand, ...]:
    return tuple(HaproxyCommand(f"del server {backend}/{name}", (DELETED, ATTACHED)) for backend, name in places)


def find_differences(wanted: Backends, current: ObservedBackends) -> tuple[str, ...]:
    """Returns what is not in force yet; servers that only wait to be deleted are not listed."""
    steps = opening_commands(wanted, current) + closing_commands(wanted, current)  # all but the fence
    return tuple(step.command for step in steps if not step.command.startswith("del server "))


def limiting_commands(wanted: Backends, loads: Mapping[tuple[str, str], ServerLoad]) -> tuple[HaproxyCommand, ...]:
    """Returns commands for servers whose limit of open requests differs."""
    return tuple(
        HaproxyCommand(f"set maxconn server {backend}/{name} {server.most_open}")
        for backend, servers in wanted.items()
        for name, server in servers.items()
        if (load := loads.get((backend, name))) is not None and load.most_open != server.most_open
    )


def find_refused_addresses(wanted: Backends, current: ObservedBackends) -> dict[str, str]:
    """Returns the servers that HAProxy has left at another address, after it was asked to change it."""
    return {
        name: f"it stays at {found.host}:{found.port}"
        for backend, servers in wanted.items()
        for name, server in servers.items()
        if (found := current.get(backend, {}).get(name)) and (found.host, found.port) != (server.host, server.port)
    }


def map_additions(path: str, wanted: Mapping[str, str], current: Mapping[str, str]) -> tuple[HaproxyCommand, ...]:
    steps = [HaproxyCommand(f"add map {path} {key} {value}") for key, value in wanted.items() if key not in current]
    wrong = [key for key in wanted if key in current and current[key] != wanted[key]]
    return (*steps, *(HaproxyCommand(f"set map {path} {key} {wanted[key]}") for key in wrong))


def map_removals(path: str, wanted: Mapping[str, str], current: Mapping[str, str]) -> tuple[HaproxyCommand, ...]:
    """Returns commands that remove services without a slot."""
    return tuple(HaproxyCommand(f"del map {path} {key}") for key in current if key not in wanted)
