"""Addresses of the console's pages, from the names of what they show. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote, urlencode

SIGN_IN = "/sign-in"
LONGEST = 1000
NOT_OF_VIEWS = ("done", "zone")  # of the parameters of a page


def service_link(name: str) -> str:
    """Returns the address of the page of a service, tenant/name."""
    return f"/services/{quote(name, safe='/')}"


def node_link(name: str) -> str:
    return f"/nodes/{quote(name, safe='')}"


def plan_link(generation: int | str) -> str:
    return f"/plans/{quote(str(generation), safe='')}"


def job_link(name: str) -> str:
    """Returns the address of the list of jobs with this job alone, tenant/name."""
    return f"/jobs?{urlencode({'name': name}, safe='/')}"


def subject_link(kind: str, name: str) -> str:
    """Returns the address of the page about the subject of an event; empty if it has none."""
    match kind:
        case "Service" if name.count("/") == 1:
            return service_link(name)
        case "Node":
            return node_link(name.partition("/")[0])
        case "Plan" if name[:1] == "p" and name[1:].isdigit():
            return plan_link(name[1:])
        case "Job":
            return job_link(name)
    return ""


def audit_link(kind: str, name: str) -> str:
    """Returns the address of what was done to an object, and by whom."""
    return f"/audit?{urlencode({'kind': kind, 'name': name}, safe='/')}"


def what_if_link(**fields: str) -> str:
    """Returns the address of a what-if whose form is filled in."""
    return f"/what-if?{urlencode(fields, safe='/')}"


def view_link(path: str, given: Mapping[str, str], zone: str) -> str:
    """Returns the address at which this page shows the same in any browser, with its time zone."""
    kept = {name: value for name, value in given.items() if value and name not in NOT_OF_VIEWS}
    return safe_address(f"{path}?{urlencode({**kept, 'zone': zone}, safe='/')}")


def sign_in_link(back: str) -> str:
    """Returns the address of the form that leads back to this address."""
    return SIGN_IN if back == "/" else f"{SIGN_IN}?{urlencode({'to': back}, safe='/')}"


def safe_address(text: str) -> str:
    """Returns the address if it is one of this server, else that of the first page: no link leads to another site."""
    is_own = text.startswith("/") and text[1:2] not in ("/", "\\") and len(text) <= LONGEST
    is_plain = text.isascii() and text.isprintable() and "\\" not in text and " " not in text
    # A browser takes /./sign-in and /%2e/sign-in for /sign-in.
    is_direct = not any(unquote(part) in (".", "..") for part in text.partition("?")[0].split("/"))
    return text if is_own and is_plain and is_direct and not text.startswith(SIGN_IN) else "/"
