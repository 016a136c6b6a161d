"""Listens and serves in a process with one event loop, and ends within seconds of a signal."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import uvicorn

from app import garbage
from app.http.connection import GuardedConnection
from app.http.floor import ConnectionLimits, Floor
from app.settings import Settings, SettingsError

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)
BACKLOG = 2048
TURN_SECONDS = 0.0005  # a thread that returns from the database runs ten times sooner than by default
FILES_BESIDE_CONNECTIONS = 256  # the database pool, worker processes, logs


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answers, as `on_ready` gets it."""

    host: str
    port: int  # the real port if the settings have 0
    url: str
    stop: Callable[[], None]  # from any thread: shut down as on SIGTERM


class StartupFailed(RuntimeError):
    """The application did not start; the log has the reason."""


def serve(
    app: Callable[..., Awaitable[None]],
    settings: Settings,
    *,
    on_ready: Callable[[RunningServer], None] | None = None,
    limits: ConnectionLimits | None = None,
) -> None:
    """Serves `app`, usually a Gate, until SIGINT, SIGTERM or `RunningServer.stop`; then returns.

    Raises SettingsError if the address or the certificate is wrong, or a certificate is missing.
    """
    limits = limits or ConnectionLimits(write_stall_seconds=settings.write_stall_seconds)
    limits = replace(limits, connections=_affordable(limits.connections))
    context = _tls(settings)
    listener = _listener(settings, limits)
    config = uvicorn.Config(
        app,
        http=GuardedConnection,
        ws="none",
        loop="uvloop",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # any client can send this header, so it proves nothing about the sender
        server_header=False,
        timeout_keep_alive=limits.keep_alive_seconds,  # type: ignore[arg-type]  # call_later takes parts of seconds
        timeout_graceful_shutdown=limits.shutdown_seconds,  # type: ignore[arg-type]
    )
    try:
        HttpServer(config, Floor(limits), listener, context, on_ready).run()
    finally:
        listener.close()


class HttpServer(uvicorn.Server):
    """uvicorn with our listener, our register of connections, and signals that end it and not this process."""

    def __init__(
        self,
        config: uvicorn.Config,
        floor: Floor,
        listener: socket.socket,
        context: ssl.SSLContext | None,
        on_ready: Callable[[RunningServer], None] | None,
    ) -> None:
        super().__init__(config)
        self.server_state = floor
        self._floor = floor
        self._listener = listener
        self._context = context
        self._on_ready = on_ready
        self._sweep: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise StartupFailed("the application did not start; the log says why")
        loop = asyncio.get_running_loop()

        def connection() -> GuardedConnection:
            return GuardedConnection(self.config, self._floor, self.lifespan.state)

        tls: dict[str, Any] = {}
        if self._context:
            tls = {"ssl": self._context, "ssl_handshake_timeout": self._floor.limits.head_seconds}
            tls["ssl_shutdown_timeout"] = self._floor.limits.linger_seconds
        self.servers = [await loop.create_server(connection, sock=self._listener, backlog=BACKLOG, **tls)]
        self._sweep = loop.create_task(self._floor.sweep())
        self.started = True
        garbage.settle()
        sys.setswitchinterval(TURN_SECONDS)
        listening = self._listening()
        log.info("listening", extra={"url": listening.url})
        if self._on_ready:
            self._on_ready(listening)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("shutting_down")
        drain = getattr(self.config.loaded_app, "drain", None)
        if drain:
            drain()
        if self._sweep:
            self._sweep.cancel()
        await super().shutdown(sockets)
        for connection in list(self._floor.open):
            connection.socket_transport.abort()  # a reader that takes nothing delays no other

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals as uvicorn does, but does not raise them again: the database must be stopped afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _listening(self) -> RunningServer:
        host, port = self._listener.getsockname()[:2]
        scheme = "https" if self._context else "http"
        shown = f"[{host}]" if ":" in host else host

        def stop() -> None:
            self.should_exit = True

        return RunningServer(host, port, f"{scheme}://{shown}:{port}", stop)


def is_loopback(host: str) -> bool:
    """Returns True if only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check(settings: Settings) -> None:
    """Refuses to send tokens unencrypted over a network, unless the settings allow it."""
    if is_loopback(settings.host) or settings.tls_cert or settings.allow_plaintext:
        return
    raise SettingsError(
        f"host {settings.host} can be reached from other machines, and without TLS tokens travel in the clear; "
        "give --tls-cert and --tls-key (GPUWRIGHT_TLS_CERT, GPUWRIGHT_TLS_KEY), or, behind a proxy that does TLS, "
        "--allow-plaintext (GPUWRIGHT_ALLOW_PLAINTEXT=1)"
    )


def refuse_taken_port(settings: Settings) -> None:
    """Raises SettingsError if the server could not listen, before anything else is started for it."""
    _listener(settings, ConnectionLimits(write_stall_seconds=settings.write_stall_seconds)).close()


def _listener(settings: Settings, limits: ConnectionLimits) -> socket.socket:
    check(settings)
    host = settings.host.strip("[]")
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by every connection: a peer that vanished silently is noticed.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(limits.write_stall_seconds * 1000))
        listener.bind(address)
    except OSError as error:
        if listener:
            listener.close()
        raise SettingsError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}; "
            "choose another with --port and --host (GPUWRIGHT_PORT, GPUWRIGHT_HOST), or stop what listens there"
        ) from error
    listener.setblocking(False)
    return listener


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)  # TLS 1.2 and newer
    context.set_alpn_protocols(["http/1.1"])
    for path in (settings.tls_cert, settings.tls_key):
        _readable(path)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_no_password)
    except ssl.SSLError as error:
        raise SettingsError(
            f"certificate {settings.tls_cert} and key {settings.tls_key} are not a matching pair of PEM files: {error}"
        ) from error
    return context


def _readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error


def _no_password() -> NoReturn:
    raise SettingsError("the TLS key is encrypted; a server that starts unattended needs a key without a passphrase")


def _affordable(connections: int) -> int:
    """Raises the limit of open files as far as possible, and returns what fits under it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES_BESIDE_CONNECTIONS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(16, min(connections, soft - FILES_BESIDE_CONNECTIONS))
