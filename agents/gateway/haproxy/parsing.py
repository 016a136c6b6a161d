"""Parses HAProxy's answers strictly: anything undocumented is an error, never a guess."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from agents.contract.addresses import unwrap


class HaproxyGarbled(Exception):
    """An answer of HAProxy that cannot be parsed."""


@dataclass(frozen=True, slots=True)
class HaproxyProcess:
    """A process of HAProxy; after a reload an old one finishes its requests."""

    pid: int
    old: bool


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server's state in HAProxy."""

    host: str
    port: int
    weight: int
    admin: int  # bits
    operational: int

    @property
    def ready(self) -> bool:
        return self.operational == RUNNING and self.takes_requests

    @property
    def takes_requests(self) -> bool:
        """Returns whether it gets requests while it runs."""
        return self.admin == 0 and self.weight > 0


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """The present requests of a server, or of a whole backend."""

    open: int
    queued: int
    most_open: int = 0  # its limit; of a backend: 0
    total: int = 0  # since the process began


RUNNING = 2
MAINT_BITS = 0x01 | 0x02 | 0x04 | 0x20 | 0x40
DRAIN = 0x08
_PROCESS = re.compile(r"(\d+)\s+(master|worker|\S+)\s+(\d+)\s.*")
_STATE_COLUMNS = ("be_name", "srv_name", "srv_addr", "srv_op_state", "srv_admin_state", "srv_uweight", "srv_port")


def parse_processes(text: str) -> tuple[HaproxyProcess, ...]:
    """Parses the master's `show proc`."""
    lines = text.rstrip("\n").split("\n")
    if not lines[0].startswith("#<PID>") or not any(line.startswith("# workers") for line in lines):
        raise HaproxyGarbled(f"show proc: {text[:200]!r}")
    found, section = [], ""
    for line in lines[1:]:
        if line.startswith("#"):
            section = line[1:].strip()
        elif line.strip():
            match = _PROCESS.fullmatch(line)
            if match is None:
                raise HaproxyGarbled(f"show proc: {line[:200]!r}")
            if match[2] == "worker":
                found.append(HaproxyProcess(int(match[1]), old=section == "old workers"))
    return tuple(found)


def parse_servers(text: str) -> dict[str, dict[str, ServerState]]:
    """Parses `show servers state`: servers by backend and name."""
    lines = [line for line in text.split("\n") if line]
    if len(lines) < 2 or lines[0] != "1" or not lines[1].startswith("# "):
        raise HaproxyGarbled(f"show servers state: {text[:200]!r}")
    header = lines[1][2:].split(" ")
    found: dict[str, dict[str, ServerState]] = {}
    try:
        at = [header.index(column) for column in _STATE_COLUMNS]
        for line in lines[2:]:
            cells = line.split(" ")
            if len(cells) != len(header):
                raise ValueError(line)
            backend, name, host, operational, admin, weight, port = (cells[index] for index in at)
            state = ServerState(_spell(host), int(port), int(weight), int(admin), int(operational))
            found.setdefault(backend, {})[name] = state
    except ValueError as error:
        raise HaproxyGarbled(f"show servers state: {str(error)[:200]}") from error
    return found


def _spell(host: str) -> str:
    """Returns the address as the rest of the gateway spells it; HAProxy writes some as IPv4 within IPv6."""
    try:
        return str(unwrap(ip_address(host)))
    except ValueError:
        return host


def parse_map(text: str) -> dict[str, str]:
    """Parses `show map FILE`: values by key; a key with two different values gets both."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        if not line:
            continue
        cells = line.split(" ")
        if len(cells) != 3 or not cells[0].startswith("0x"):
            raise HaproxyGarbled(f"show map: {line[:200]!r}")
        before = found.setdefault(cells[1], cells[2])
        if before != cells[2]:
            found[cells[1]] = f"{before} {cells[2]}"
    return found


def parse_loads(text: str) -> dict[tuple[str, str], ServerLoad]:
    """Parses `show stat`: loads by backend and server; the server BACKEND is the whole backend."""
    lines = [line for line in text.split("\n") if line]
    if not lines or not lines[0].startswith("# pxname,svname,qcur,qmax,scur,smax,slim,stot,"):
        raise HaproxyGarbled(f"show stat: {text[:200]!r}")
    found = {}
    try:
        for line in lines[1:]:
            cells = line.split(",", 8)
            most = 0 if cells[1] == "BACKEND" else int(cells[6] or 0)
            found[cells[0], cells[1]] = ServerLoad(int(cells[4]), int(cells[2] or 0), most, int(cells[7]))
    except (ValueError, IndexError):
        raise HaproxyGarbled(f"show stat: {line[:200]!r}") from None
    return found


def parse_info(text: str) -> dict[str, str]:
    """Parses `show info`."""
    found = dict(line.split(": ", 1) for line in text.split("\n") if ": " in line)
    if "Pid" not in found:
        raise HaproxyGarbled(f"show info: {text[:200]!r}")
    return found
