"""Links between servers: how long they take to send keys and values, what that costs, and in which order they do it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from solvers.pools.cover import count_places
from solvers.pools.servers import Floats, Integers, RatedServer

NVLINK, PCIE, NETWORK = "nvlink", "pcie", "network"
BYTES_PER_GBIT_MS = 1e9 / 8 / 1000  # that a link of one gigabit a second sends in a millisecond
BYTES_PER_GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class ServerLink:
    """A kind of link: NVLink and PCIe join some GPUs of one type, the network joins all."""

    kind: str
    gbit_per_second: Mapping[str, float]  # of each GPU in each direction, by GPU type
    price_per_gib: float = 0.0
    most_gpus: int | None = None  # that it joins; None: any number, of any types
    groups: Mapping[int, int] | None = None  # of joined GPUs: how many there are of each size; None: any number
    senders: Collection[str] | None = None  # types of the servers that send at this price; None: all

    def has_room(self, cells: int, gpus: int) -> bool:
        """Returns whether it joins the GPUs of each of these cells, which have so many each."""
        fits = self.most_gpus is None or gpus <= self.most_gpus
        return fits and (self.groups is None or cells <= count_places(self.groups, gpus))

    def can_send(self, server: RatedServer) -> bool:
        return self.senders is None or server.gpu_type in self.senders

    def gbit_of(self, server: RatedServer) -> float:
        """Returns the speed of all links of a server."""
        return self.gbit_per_second[server.gpu_type] * server.degree


@dataclass(frozen=True, slots=True)
class KeysSent:
    """What goes over a link: the keys and values of each token of a prompt, and what sending them costs."""

    link: ServerLink
    bytes_per_token: float
    price_per_hour: float = 0.0  # at the rate of the service

    def milliseconds_per_token(self, server: RatedServer) -> float:
        """Returns how long those of a token occupy the links of a server."""
        return self.bytes_per_token / (self.link.gbit_of(server) * BYTES_PER_GBIT_MS)

    def most_per_second(self, server: RatedServer, tokens: float) -> float:
        """Returns how many prompts of so many tokens the links of a server send in a second, one after the other."""
        return 1000.0 / (tokens * self.milliseconds_per_token(server))


def price_keys(link: ServerLink, bytes_per_token: float, tokens_per_second: float) -> KeysSent:
    """Returns what is sent for prompts of so many tokens a second, with its price."""
    gib_per_hour = bytes_per_token * tokens_per_second * 3600 / BYTES_PER_GIB
    return KeysSent(link, bytes_per_token, gib_per_hour * link.price_per_gib)


def send_keys(ready: Floats, sending: tuple[Integers, Floats], receiving: tuple[Integers, Floats]) -> Floats:
    """Returns when the keys and values of each request are at their second server.

    Both ends are given as the server of each request and the time that its links are busy. Each server sends one
    request after the other, and receives so; what is received goes on while it is sent.
    """
    sent = _queue_up(ready, *sending)
    received = _queue_up(sent - sending[1], *receiving)
    return np.maximum(sent, received)


def _queue_up(ready: Floats, server_of: Integers, busy: Floats) -> Floats:
    """Returns when each request ends at its server, which takes them in the order in which they are ready."""
    ends = np.empty_like(ready)
    for own in split_by_server(ready, server_of):
        total = np.cumsum(busy[own])
        ends[own] = total + np.maximum.accumulate(ready[own] - total + busy[own])
    return ends


def split_by_server(times: Floats, server_of: Integers) -> list[Integers]:
    """Returns the requests of each server that has any, by their times, as positions; they are sorted only once."""
    order = np.lexsort((times, server_of))
    parts = np.split(order, np.flatnonzero(np.diff(server_of[order])) + 1)
    return [part for part in parts if len(part)]
