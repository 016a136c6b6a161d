"""Checks that the agent's peers can be reached: the control plane, the gateway's sidecar, Docker."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from agents.gateway.followers import FOLLOWED
from agents.node.state_folder import Credential, StateFolder
from agents.run.doctor.findings import DoctorFinding, fail, ok, warn

TIMEOUT_SECONDS = 4.0
MOST_OFFSET_SECONDS = 5.0  # beyond it, reports would be counted in the wrong minute
DOCKER_SOCKET = Path("/var/run/docker.sock")


def control_plane(folder: Path) -> Iterator[DoctorFinding]:
    """Checks that the control plane answers and accepts our token, and compares clocks; reports nothing."""
    credential = _credential(folder)
    if credential is None:
        return  # another check reports this
    began = time.time()
    try:
        status, date = _request_assignment(credential)
    except (OSError, http.client.HTTPException) as error:
        advice = "Check name, port, firewall and --ca-file. Without it the node keeps serving what it serves now."
        reason = str(error) or type(error).__name__
        yield fail("control plane", f"{credential.server} cannot be reached: {reason}", advice)
        return
    if status in (401, 403):
        advice = "The credential was revoked or has expired: join again with a new token (gpuwright token join)."
        yield fail("control plane", f"{credential.server} refuses this node ({status})", advice)
    elif status >= 500:
        advice = "It is overloaded or broken; look at its own log."
        yield warn("control plane", f"{credential.server} answered {status}", advice)
    else:
        yield ok("control plane", f"{credential.server} accepts this node's token")
    yield from _clock(date, began, time.time())


def gateway(address: str, folder: Path, token_file: str) -> Iterator[DoctorFinding]:
    """Checks HAProxy's sidecar; without a sidecar, copies count their own requests and clients must find them."""
    if not address:
        text = "not configured: copies count their own requests, and your own router must follow their addresses"
        yield ok("gateway", text)
        return
    if address == FOLLOWED:
        text = "gateways follow the control plane: they acknowledge nothing, so the agent waits a fixed time instead"
        yield ok("gateway", text)
        return
    credential = _credential(folder)
    try:
        if credential:
            from agents.gateway.client import SidecarRoutes
            from agents.seams.routes import RoutesAway

            try:
                SidecarRoutes(address, credential.node, token_file, seconds=TIMEOUT_SECONDS).counters()
            except RoutesAway as error:
                raise OSError(str(error)) from error
        else:
            _connect(address).close()
    except (OSError, ValueError) as error:
        advice = "Start gpuwright-gateway.service next to HAProxy, and set --gateway and --gateway-token-file."
        text = f"no sidecar serves this node at {address}: {getattr(error, 'strerror', None) or error}"
        yield fail("gateway", f"{text}; routes cannot change, so no instance can be replaced", advice)
        return
    yield ok("gateway", f"the sidecar at {address} {'serves this node' if credential else 'listens'}")


def docker(wanted: bool) -> Iterator[DoctorFinding]:
    """Checks the Docker Engine, where templates run as containers."""
    if not wanted:
        return
    try:
        _connect(str(DOCKER_SOCKET)).close()
        advice = "Every user who may use Docker has root rights on this machine, including the agent (SECURITY.md)."
        yield warn("docker", f"the engine answers at {DOCKER_SOCKET}", advice)
    except OSError as error:
        advice = "Start the Docker Engine and give the agent's user access to it, or run copies as processes."
        yield fail("docker", f"no engine at {DOCKER_SOCKET}: {error.strerror}", advice)


def _credential(folder: Path) -> Credential | None:
    try:
        return StateFolder(folder).credential()
    except (OSError, msgspec.MsgspecError):
        return None


def _request_assignment(credential: Credential) -> tuple[int, str]:
    parts = urlsplit(credential.server)
    host, path = parts.hostname or "", f"/api/v1/nodes/{credential.node}/assignment?after=0&waitSeconds=0"
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        trust = ssl.create_default_context(cafile=credential.ca_file or None)
        connection = http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_SECONDS, context=trust)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {credential.token}"})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Date", "")
    finally:
        connection.close()


def _clock(date: str, began: float, ended: float) -> Iterator[DoctorFinding]:
    """Compares clocks; a Date header has whole seconds, so half a second is added."""
    try:
        theirs = parsedate_to_datetime(date).timestamp() + 0.5
    except (TypeError, ValueError):
        yield warn("clock", "the control plane sends no date", "Compare the clocks by hand (chronyc tracking).")
        return
    offset = (began + ended) / 2 - theirs
    difference = f"{abs(offset):.0f} s {'ahead of' if offset > 0 else 'behind'} the control plane's"
    if abs(offset) > MOST_OFFSET_SECONDS + (ended - began) / 2:
        yield warn(
            "clock",
            f"this machine's clock is {difference}",
            "Reports would be misdated: run chrony or systemd-timesyncd.",
        )
    else:
        yield ok("clock", "agrees with the control plane's clock")


def _connect(address: str) -> socket.socket:
    """Connects to a Unix socket's path, or to host:port, with or without http:// before it."""
    address = address.removeprefix("unix:")
    if address.startswith("/"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(TIMEOUT_SECONDS)
        try:
            connection.connect(address)
        except OSError:
            connection.close()
            raise
        return connection
    parts = urlsplit(address if "//" in address else f"//{address}")
    if not parts.hostname or not parts.port:
        raise ValueError("the address is neither a path nor HOST:PORT")
    return socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_SECONDS)
