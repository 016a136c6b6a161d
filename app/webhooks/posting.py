"""Posts one request to a listed place: by TLS, to an address that was looked at first, and with an end in sight.

The address is resolved once and connected to as it was checked, so that a name cannot mean another machine in between.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from app.http.outgoing import exchange
from app.webhooks.hooks import Webhook

WHOLE_SECONDS = 10.0  # of a delivery, however slowly its answer drips
MOST_ANSWER_BYTES = 4096
REFUSALS = frozenset({400, 413, 415, 422})  # of this body; others speak of the place, its rights or its load
METADATA = (ipaddress.ip_network("169.254.0.0/16"), ipaddress.ip_network("fd00:ec2::/32"))


class NotDelivered(Exception):
    """The place did not take it; the message says why, without its address."""

    def __init__(self, why: str, *, is_refused: bool = False) -> None:
        super().__init__(why)
        self.is_refused = is_refused  # for what it says: the place is there, and would refuse it again


def post(hook: Webhook, body: bytes, headers: Mapping[str, str]) -> None:
    """Delivers it, or raises NotDelivered. Only a 2xx is a delivery: no redirect is followed."""
    parts = urlsplit(hook.url)
    connection = _Pinned(hook, parts.port or (443 if parts.scheme == "https" else 80))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        status, _ = exchange(
            connection, "POST", target, body, {"User-Agent": "gpuwright", **headers},
            seconds=WHOLE_SECONDS, most_bytes=MOST_ANSWER_BYTES,
        )  # fmt: skip
    except (OSError, http.client.HTTPException) as error:
        raise NotDelivered(explain(error)) from None
    if not 200 <= status < 300:
        raise NotDelivered(f"it answered {status}", is_refused=status in REFUSALS)


class _Pinned(http.client.HTTPConnection):
    """Connects to the first address of the host that may be one of a receiver."""

    def __init__(self, hook: Webhook, port: int) -> None:
        super().__init__(hook.host, port, timeout=WHOLE_SECONDS)
        self._hook = hook

    def connect(self) -> None:
        address = find_address(self.host, self.port, self._hook.on_this_machine)
        plain = socket.create_connection((address, self.port), timeout=WHOLE_SECONDS)
        self.sock = plain  # so that it can be cut off while TLS is agreed on
        if self._hook.url.startswith("https:"):
            context = ssl.create_default_context(cafile=self._hook.ca_file or None)
            self.sock = context.wrap_socket(plain, server_hostname=self.host)


def find_address(host: str, port: int, is_local: bool) -> str:
    """Returns the first address of the host; refuses hosts of which any address is no receiver's."""
    try:
        found = [str(item[4][0]) for item in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        raise NotDelivered("its name has no address") from None
    for address in found:
        if not _may_receive(address, is_local):
            raise NotDelivered(f"its name means {address}, where nothing is sent")
    return found[0]


def _may_receive(text: str, is_local: bool) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_loopback:
        return is_local
    is_metadata = any(address in network for network in METADATA if network.version == address.version)
    return not (is_local or is_metadata or address.is_unspecified or address.is_multicast or address.is_link_local)


def explain(error: Exception) -> str:
    """Returns why a delivery failed, without its address."""
    if isinstance(error, TimeoutError):
        return f"it did not answer within {WHOLE_SECONDS:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate does not hold: {error.verify_message}"
    reason = getattr(error, "strerror", None) or type(error).__name__
    return str(reason)[:200]
