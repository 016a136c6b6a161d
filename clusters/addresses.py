"""Addresses of servers: which can be asked, and what of one may be shown."""

from __future__ import annotations

from urllib.parse import urlsplit

MOST_CHARACTERS = 300  # of what a server says


class AddressRefused(Exception):
    """An address is not that of a server; the message says why, without the address, which may hold a password."""


def check_address(url: str) -> None:
    """Refuses what is no URL of a server, or has more than its place: that would be sent nowhere, or be shown."""
    try:
        parts = urlsplit(url)
        is_place = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:
        is_place = False
    if not is_place or not url.isascii() or not url.isprintable() or " " in url:
        raise AddressRefused("it is not a URL of http or https with a host")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise AddressRefused("its URL has a name, a password or a query, which are not sent: give a token in a file")


def show_origin(url: str) -> str:
    """Returns the scheme, host and port of a URL, without what it may hold besides; empty where it has none."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{port}" if host else ""


def show_message(text: str) -> str:
    """Returns what a server says, in one line that somebody reads."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}..."
