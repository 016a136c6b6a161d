"""Limits on the work and memory of a server."""

from __future__ import annotations

from dataclasses import dataclass

from app.http.lanes import KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Limits on concurrent work. The bytes bound the memory that hostile traffic can take from this process."""

    body_bytes: int = 48 * MIB  # bodies being read or worked on
    body_bytes_each: int = 16 * MIB  # of one principal
    node_body_bytes: int = 16 * MIB  # node reports have their own limit, which no other traffic uses up
    node_body_bytes_each: int = 2 * MIB
    anonymous_body_bytes: int = 4 * MIB
    anonymous_body_bytes_each: int = 128 * KIB  # of one address: it cannot keep nodes from joining
    anonymous_bodies: int = 10_240  # that are arriving: as many as there are connections
    anonymous_bodies_each: int = 16  # of one address
    unsent_bytes: int = 128 * MIB  # of answers that wait for their readers
    unsent_bytes_each: int = 32 * MIB  # of one principal; a single answer may be larger
    anonymous_unsent_bytes: int = 8 * MIB
    anonymous_unsent_bytes_each: int = 1 * MIB  # of one address
    working: int = 32  # requests in routes; the threads that run them are 40
    working_each: int = 16
    heavy: int = 4  # of them: reads of the whole plan, of all loads, or of a month of money
    heavy_each: int = 1
    asking: int = 8  # of them: pages that wait for the solver; a snapshot of a large fleet takes tens of megabytes
    asking_each: int = 2
    queue: int = 1024
    queue_seconds: float = 10.0
    long: int = 6144  # watches and long polls, one of each of 4,096 agents
    long_each: int = 64
    peer_failures_per_second: float = 2.0
    peer_failures_burst: float = 60.0
    peer_per_second: float = 100.0  # requests that need no token
    peer_burst: float = 300.0
