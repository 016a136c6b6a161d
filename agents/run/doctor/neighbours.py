"""Whether those that the agent talks to can be reached: the control plane, the gateway's sidecar, Docker."""

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

SECONDS = 4.0
MOST_OFFSET_SECONDS = 5.0  # reports are put into minutes by the agent's clock
DOCKER = Path("/var/run/docker.sock")


def control_plane(folder: Path) -> Iterator[DoctorFinding]:
    """Reach it, be known there, and compare clocks. Nothing is reported: only an assignment is asked for."""
    credential = _credential(folder)
    if credential is None:
        return  # told by another check
    began = time.time()
    try:
        status, date = _asked(credential)
    except (OSError, http.client.HTTPException) as error:
        advice = "Check name, port, firewall and --ca-file. The node keeps serving what it serves without it."
        reason = str(error) or type(error).__name__
        yield fail("control plane", f"{credential.server} cannot be reached: {reason}", advice)
        return
    if status in (401, 403):
        advice = "The credential was revoked or has expired: join again with a new token (gpuwright token join)."
        yield fail("control plane", f"{credential.server} refuses this node ({status})", advice)
    elif status >= 500:
        yield warn("control plane", f"{credential.server} answered {status}", "It is busy or broken; see its own log.")
    else:
        yield ok("control plane", f"{credential.server} knows this node")
    yield from _clock(date, began, time.time())


def gateway(address: str, folder: Path, token_file: str) -> Iterator[DoctorFinding]:
    """The sidecar beside HAProxy; without one the copies count for themselves and nobody moves traffic for them."""
    if not address:
        yield ok("gateway", "none is named: copies count their own requests, and whoever routes to them must follow")
        return
    if address == FOLLOWED:
        yield ok("gateway", "gateways follow the control plane: what they do is not acknowledged, only waited for")
        return
    credential = _credential(folder)
    try:
        if credential:
            from agents.gateway.client import SidecarRoutes
            from agents.seams.routes import RoutesAway

            try:
                SidecarRoutes(address, credential.node, token_file, seconds=SECONDS).counters()
            except RoutesAway as error:
                raise OSError(str(error)) from error
        else:
            _connected(address).close()
    except (OSError, ValueError) as error:
        advice = "Start gpuwright-gateway.service beside HAProxy; --gateway and --gateway-token-file name it."
        text = f"no sidecar serves this node at {address}: {getattr(error, 'strerror', None) or error}"
        yield fail("gateway", f"{text}; no route changes, and so no instance is replaced", advice)
        return
    yield ok("gateway", f"the sidecar at {address} {'serves this node' if credential else 'listens'}")


def docker(wanted: bool) -> Iterator[DoctorFinding]:
    """Only where templates run as containers."""
    if not wanted:
        return
    try:
        _connected(str(DOCKER)).close()
        advice = "Whoever may speak to Docker is root on this machine, the agent included (SECURITY.md)."
        yield warn("docker", f"the engine answers at {DOCKER}", advice)
    except OSError as error:
        advice = "Start the Docker Engine and let the agent's user speak to it, or run copies as processes."
        yield fail("docker", f"no engine at {DOCKER}: {error.strerror}", advice)


def _credential(folder: Path) -> Credential | None:
    try:
        return StateFolder(folder).credential()
    except (OSError, msgspec.MsgspecError):
        return None


def _asked(credential: Credential) -> tuple[int, str]:
    parts = urlsplit(credential.server)
    host, path = parts.hostname or "", f"/api/v1/nodes/{credential.node}/assignment?after=0&waitSeconds=0"
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        trust = ssl.create_default_context(cafile=credential.ca_file or None)
        connection = http.client.HTTPSConnection(host, parts.port, timeout=SECONDS, context=trust)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=SECONDS)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {credential.token}"})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Date", "")
    finally:
        connection.close()


def _clock(date: str, began: float, ended: float) -> Iterator[DoctorFinding]:
    """A Date header says the second only; half a second is its middle."""
    try:
        theirs = parsedate_to_datetime(date).timestamp() + 0.5
    except (TypeError, ValueError):
        yield warn(
            "clock", "the control plane does not tell its time", "Compare the clocks by hand (chronyc tracking)."
        )
        return
    offset = (began + ended) / 2 - theirs
    said = f"{abs(offset):.0f} s {'ahead of' if offset > 0 else 'behind'} the control plane's"
    if abs(offset) > MOST_OFFSET_SECONDS + (ended - began) / 2:
        yield warn(
            "clock", f"this clock is {said}", "Keep it with chrony or systemd-timesyncd; reports would be misdated."
        )
    else:
        yield ok("clock", "agrees with the control plane's")


def _connected(address: str) -> socket.socket:
    """To a path of a Unix socket, or to host:port, with or without http:// before it."""
    address = address.removeprefix("unix:")
    if address.startswith("/"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(SECONDS)
        try:
            connection.connect(address)
        except OSError:
            connection.close()
            raise
        return connection
    parts = urlsplit(address if "//" in address else f"//{address}")
    if not parts.hostname or not parts.port:
        raise ValueError("this is neither a path nor host:port")
    return socket.create_connection((parts.hostname, parts.port), timeout=SECONDS)
