"""Refuses to send tokens over a network without TLS, unless the environment allows it."""

from __future__ import annotations

import os
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

VARIABLE = "GPUWRIGHT_ALLOW_PLAINTEXT"


def is_loopback(host: str) -> bool:
    """Returns whether only this machine answers at `host`; a name counts only if it is localhost."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def plaintext_refusal(server: str) -> str:
    """Returns why no token may be sent to this address; empty where it may."""
    parts = urlsplit(server)
    if parts.scheme != "http" or is_loopback(parts.hostname or "") or os.environ.get(VARIABLE) == "1":
        return ""
    return (
        f"{server} is not encrypted: anyone on the network path could read the token; use https://, or set {VARIABLE}=1"
    )
