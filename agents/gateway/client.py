"""The agent's client of the gateway: declares this node's routes and reads its copies' counters."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from agents.contract.gateways import TokenTotals
from agents.contract.paths import build_table, hash_rules
from agents.gateway.wire import DeclaredRoutes, GatewayRefusal, RoutesInForce, RouteSpec, SidecarCounts
from agents.host import deadline
from agents.host.wire import connect
from agents.seams.routes import Acknowledged, Route, RoutesAway, RouteState
from agents.seams.traffic import Counters

TIMEOUT_SECONDS = 10.0

_in_force = msgspec.json.Decoder(RoutesInForce)
_all_in_force = msgspec.json.Decoder(dict[str, RoutesInForce])
_counts = msgspec.json.Decoder(SidecarCounts)
_refusal = msgspec.json.Decoder(GatewayRefusal)


class _UnixConnection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        connect(self.sock, Path(self.host))


class SidecarRoutes:
    """Speaks for one source at one sidecar. `address` is a path, http://HOST:PORT or https://HOST:PORT.

    Not for use by several threads.
    """

    def __init__(
        self, address: str, source: str, token_file: str = "", ca_file: str = "", seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._address = address.removeprefix("unix:")
        self._source = source
        self._token_file = token_file
        self._seconds = seconds
        self._sequence = -1  # of the last declaration; -1: not known yet
        self._declared: tuple[RouteSpec, ...] | None = None
        self._tls = ssl.create_default_context(cafile=ca_file or None) if address.startswith("https:") else None

    def declare(self, routes: Sequence[Route]) -> Acknowledged:
        """Declares all routes of this source; in force when it returns. Raises RoutesAway without acknowledgement."""
        specs = tuple(
            RouteSpec(
                route.copy,
                route.service,
                route.address,
                route.weight,
                route.drained,
                paths="" if route.paths is None else hash_rules(route.paths),
            )
            for route in routes
        )
        if self._sequence < 0:  # continue the sequence of an earlier agent
            answer = self._ask("GET", f"/v1/routes?source={quote(self._source)}")
            try:
                held = _all_in_force.decode(answer)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise RoutesAway(f"the gateway's list of routes cannot be parsed: {error}") from error
            self._sequence = held[self._source].sequence if self._source in held else 0
        if specs != self._declared:  # an unchanged declaration keeps its number, which costs the sidecar no write
            self._sequence += 1
            self._declared = specs
        body = msgspec.json.encode(DeclaredRoutes(self._sequence, specs, build_table(route.paths for route in routes)))
        answer = self._ask("PUT", f"/v1/routes/{quote(self._source)}", body)
        try:
            in_force = _in_force.decode(answer)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise RoutesAway(f"the gateway's acknowledgement cannot be parsed: {error}") from error
        return Acknowledged(
            tuple(RouteState(route.copy, route.ready, route.open_requests) for route in in_force.routes)
        )

    def counters(self) -> Mapping[str, Counters]:
        """Returns what each copy of this source has served, also recently gone ones; raises RoutesAway."""
        try:
            counts = _counts.decode(self._ask("GET", f"/v1/counters?source={quote(self._source)}"))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise RoutesAway(f"the gateway's counters cannot be parsed: {error}") from error
        copies = (counted for counted in counts.counted if counted.copy)
        return {
            copy.copy: Counters(copy.requests, copy.errors, copy.latency_counts, tokens.paced, tokens.pace_late)
            for copy in copies
            for tokens in (copy.tokens or TokenTotals(),)
        }

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        connection: http.client.HTTPConnection | None = None
        try:
            if self._token_file:
                headers["Authorization"] = f"Bearer {Path(self._token_file).read_text().split()[-1]}"
            connection = self._connection()
            status, _, text = deadline.exchange(connection, method, path, body, headers, self._seconds)
        except (OSError, http.client.HTTPException, ValueError, IndexError) as error:
            raise RoutesAway(f"the gateway at {self._address} does not answer: {error!r}") from error
        finally:
            if connection:
                connection.close()
        if status == 200:
            return text
        try:
            refusal = _refusal.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            refusal = GatewayRefusal("unknown", f"status {status}")
        if refusal.reason == "stale":  # another client spoke for this source: declare again with a higher number
            self._sequence, self._declared = max(self._sequence, refusal.sequence), None
        answer = deadline.printable(f"{refusal.message[:300]} ({refusal.reason[:60]})")
        raise RoutesAway(f"the gateway at {self._address}: {answer}")

    def _connection(self) -> http.client.HTTPConnection:
        if self._address.startswith("/"):
            return _UnixConnection(self._address, timeout=self._seconds)
        parts = urlsplit(self._address)
        if self._tls:
            return http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=self._seconds, context=self._tls
            )
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=self._seconds)
