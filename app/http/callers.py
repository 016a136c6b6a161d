"""Authenticates callers: checks tokens off the event loop, and slows down guesses at tokens by address."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from app.access import Principal
from app.http import metrics
from app.http.buckets import Buckets, too_many
from app.problem import HttpProblem

Authenticate = Callable[[str | None], Principal]
Remembered = Callable[[str | None], Principal | None]

THREADS = 4  # apart from the routes' own, so that made-up tokens occupy no route
LONGEST_QUEUE = 256
GOOD_KEPT = 20_000
LONGEST_HEADER = 512


class Callers:
    """Finds the principal of a request.

    Failures cost the peer's address a token of its bucket. An address without one gets 429 for tokens not
    known to be good; those go on working. Behind a proxy all have its address, unless it is trusted to say theirs.
    """

    def __init__(self, authenticate: Authenticate, remembered: Remembered, failures: Buckets) -> None:
        self._authenticate = authenticate
        self._remembered = remembered
        self._failures = failures
        self._good: OrderedDict[bytes, None] = OrderedDict()  # hashes of headers that were once accepted
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="authenticate")
        self._pending = 0

    async def principal(self, header: str | None, peer: str) -> Principal:
        known = self._remembered(header)
        if known is not None:
            return known
        if header is None or len(header) > LONGEST_HEADER:
            self.check(peer)
            self.failed(peer)
            return self._authenticate(None)  # raises the refusal, without a look at the database
        digest = hashlib.sha256(header.encode()).digest()
        if digest not in self._good:
            self.check(peer)
        if self._pending >= LONGEST_QUEUE:
            raise HttpProblem("unavailable", "too many tokens are being checked", headers={"Retry-After": "1"})
        self._pending += 1
        try:
            loop = asyncio.get_running_loop()
            principal = await loop.run_in_executor(self._threads, self._authenticate, header)
        except HttpProblem as problem:
            if problem.status == 401:
                self._good.pop(digest, None)
                self.failed(peer)
            raise
        finally:
            self._pending -= 1
        self._good[digest] = None
        if len(self._good) > GOOD_KEPT:
            self._good.popitem(last=False)
        return principal

    def check(self, peer: str) -> None:
        """Refuses an address that has failed too often recently."""
        wait = self._failures.wait(peer, time.monotonic())
        if wait:
            raise too_many("failed authentications from this address", wait, self._failures)

    def failed(self, peer: str) -> None:
        metrics.FAILED_AUTHENTICATIONS.inc()
        self._failures.take(peer, time.monotonic())

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def peer_of(client: tuple[str, int] | None, forwarded: str, proxies: Sequence[IPv4Network | IPv6Network]) -> str:
    """Returns the address for limits: for IPv6 its /64, because a customer gets a whole /64.

    Of a request that a proxy of ours forwards, it is the last address in X-Forwarded-For that is no proxy of ours: any
    client can write what comes before it.
    """
    if client is None:
        return "local"
    host = client[0]
    for before in reversed(forwarded.split(",") if proxies and forwarded else ()):
        if not _is_among(host, proxies):
            break
        host = before.strip()
    return _find_network(host) or _find_network(client[0]) or client[0]


def _is_among(host: str, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return any((mapped or address) in network for network in networks)


def _find_network(host: str) -> str:
    """Returns the address, or its /64; empty if it is no address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address) >> 64 << 64, 64)))
