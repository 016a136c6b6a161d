"""Posts one signed request to a listed place: by TLS, to an address that was looked at first, and with an end in sight.

The address is resolved once and connected to as it was checked, so that a name cannot mean another machine in between.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit

from app.http.outgoing import exchange
from app.settings import is_plain_loopback

POST_ADDRESS = "https://HOST[:PORT]/PATH (http: with onThisMachine only)"
LEAST_SECRET = 16  # characters
WHOLE_SECONDS = 10.0  # of a delivery, however slowly its answer drips
MOST_ANSWER_BYTES = 4096
REFUSALS = frozenset({400, 413, 415, 422})  # of this body; others speak of the place, its rights or its load
METADATA = tuple(map(ipaddress.ip_network, ("169.254.0.0/16", "fd00:ec2::/32", "100.100.100.200/32")))
TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # IPv4 behind a NAT64


class PostedPlace(Protocol):
    """A place that the operator has listed."""

    @property
    def url(self) -> str: ...
    @property
    def ca_file(self) -> str: ...  # of its certificate's authority; empty for those of the system
    @property
    def on_this_machine(self) -> bool: ...  # it listens on loopback


class NotDelivered(Exception):
    """The place did not take it; the message says why, without its address."""

    def __init__(self, why: str, *, is_refused: bool = False) -> None:
        super().__init__(why)
        self.is_refused = is_refused  # for what it says: the place is there, and would refuse it again


def post(
    place: PostedPlace, body: bytes, headers: Mapping[str, str], *, seconds: float = WHOLE_SECONDS,
    most_bytes: int = MOST_ANSWER_BYTES,
) -> bytes:  # fmt: skip
    """Delivers it and returns the answer's body, cut one byte after `most_bytes`; or raises NotDelivered.

    Only a 2xx is a delivery: no redirect is followed.
    """
    parts = urlsplit(place.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        status, content = exchange(
            _Pinned(place, seconds), "POST", target, body, {"User-Agent": "gpuwright", **headers}, seconds=seconds,
            most_bytes=most_bytes,
        )  # fmt: skip
    except (OSError, http.client.HTTPException) as error:
        raise NotDelivered(explain(error, seconds)) from None
    if not 200 <= status < 300:
        raise NotDelivered(f"it answered {status}", is_refused=status in REFUSALS)
    return content


class _Pinned(http.client.HTTPConnection):
    """Connects to the first address of the host that may be one of a receiver."""

    def __init__(self, place: PostedPlace, seconds: float) -> None:
        parts = urlsplit(place.url)
        super().__init__(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80), timeout=seconds)
        self._place, self._seconds = place, seconds

    def connect(self) -> None:
        ends_at = time.monotonic() + self._seconds
        address = find_address(self.host, self.port, self._place.on_this_machine)
        left = ends_at - time.monotonic()  # a resolver may take long, and nothing can cut it off
        if left <= 0:
            raise TimeoutError
        plain = socket.create_connection((address, self.port), timeout=left)
        self.sock = plain  # so that it can be cut off while TLS is agreed on
        if self._place.url.startswith("https:"):
            context = ssl.create_default_context(cafile=self._place.ca_file or None)
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
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address in TRANSLATED):
        address = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.is_loopback:
        return is_local
    is_metadata = any(address in network for network in METADATA if network.version == address.version)
    return not (is_local or is_metadata or address.is_unspecified or address.is_multicast or address.is_link_local)


def explain(error: Exception, seconds: float = WHOLE_SECONDS) -> str:
    """Returns why a delivery failed, without its address."""
    if isinstance(error, TimeoutError):
        return f"it did not answer within {seconds:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate does not hold: {error.verify_message}"
    reason = getattr(error, "strerror", None) or type(error).__name__
    return str(reason)[:200]


def is_post_address(url: str, is_local: bool) -> bool:
    """Returns whether it has the form of POST_ADDRESS; ValueError where it has that of no address."""
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or (is_local and is_plain_loopback(url))
    is_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    return is_safe and is_host and "@" not in parts.netloc and not parts.fragment and is_one_word(url)


def is_one_word(url: str) -> bool:
    """Returns whether the address can be written into the first line of a request."""
    return url.isascii() and url.isprintable() and " " not in url


def make_signed_headers(secret: bytes, message_id: str, now: int, body: bytes) -> dict[str, str]:
    """Returns the headers of Standard Webhooks."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{sign(secret, message_id, now, body)}",
    }


def sign(secret: bytes, message_id: str, now: int, body: bytes) -> str:
    """Returns the signature over id, time and body, by which a receiver knows sender and age."""
    signed = b".".join((message_id.encode(), str(now).encode(), body))
    return base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()
