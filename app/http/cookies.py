"""The cookies of the console: its session and the time zone. Only pages read them, never the API."""

from __future__ import annotations

import re

from starlette.types import Scope

NAME = "gpuwright"
ZONE = "gpuwright-zone"
ZONE_FORM = re.compile(r"[A-Za-z0-9_+/-]{1,64}")
ZONE_SECONDS = 366 * 86400
STARTED = "gpuwright-sign-in"
LONGEST = 200
LONGEST_STARTED = 3600
STARTED_SECONDS = 600
ATTRIBUTES = "Path=/; HttpOnly; SameSite=Strict"


def session_of(scope: Scope) -> str | None:
    """Returns the session that the browser sends; over TLS only one that no other host and no plain HTTP can set."""
    return _find(scope, _name(scope))


def zone_of(scope: Scope) -> str:
    """Returns the name of the time zone that the browser's user has chosen; empty if there is none."""
    text = _find(scope, ZONE) or ""
    return text if ZONE_FORM.fullmatch(text) else ""


def keep_zone(scope: Scope, zone: str) -> str:
    """Returns the Set-Cookie of a time zone."""
    return f"{ZONE}={zone}; Max-Age={ZONE_SECONDS}; {ATTRIBUTES}{'; Secure' if is_secure(scope) else ''}"


def keep(scope: Scope, session: str, seconds: int) -> str:
    """Returns the Set-Cookie of a session for so long."""
    return f"{_name(scope)}={session}; Max-Age={seconds}; {ATTRIBUTES}{'; Secure' if is_secure(scope) else ''}"


def drop(scope: Scope) -> str:
    """Returns the Set-Cookie that ends the session."""
    return keep(scope, "", 0)


def started_of(scope: Scope) -> str:
    """Returns what this browser was given when it went to the provider to sign in; empty if it did not go."""
    return _find(scope, _name(scope, STARTED), LONGEST_STARTED) or ""


def keep_started(scope: Scope, started: str, seconds: int = STARTED_SECONDS) -> str:
    """Returns the Set-Cookie of a sign-in that has begun; the provider's answer brings it, so it may not be Strict."""
    secure = "; Secure" if is_secure(scope) else ""
    return f"{_name(scope, STARTED)}={started}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax{secure}"


def is_secure(scope: Scope) -> bool:
    """Returns True if the browser uses TLS: to us, or to a proxy in front of us, as settings or the proxy say.

    A client that lies about it harms only its own cookie.
    """
    if scope.get("scheme") == "https" or scope.get("state", {}).get("is_public_tls"):
        return True
    return any(name == b"x-forwarded-proto" and value.strip() == b"https" for name, value in scope["headers"])


def _name(scope: Scope, name: str = NAME) -> str:
    return f"__Host-{name}" if is_secure(scope) else name


def _find(scope: Scope, wanted: str, longest: int = LONGEST) -> str | None:
    for name, value in scope["headers"]:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, _, text = part.strip().partition("=")
                if key == wanted and 0 < len(text) <= longest:
                    return str(text)
    return None
