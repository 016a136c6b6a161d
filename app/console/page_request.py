"""Reads what the address of the page asks for: service or node, order, page. Ignores what makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from urllib.parse import urlencode

SORTS = ("worst", "name", "rate", "attained", "instances", "cost")
STATES = ("unserved", "late", "kept", "quiet")
LONGEST_NAME = 130  # tenant/name
LAST_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The parameters of the page; an empty one asks for nothing in particular."""

    service: str = ""  # shown in full, and the only one coloured on the map
    node: str = ""
    find: str = ""  # part of tenant/name
    state: str = ""
    sort: str = "worst"
    page: int = 1  # of services
    fleet: int = 1  # page of the map

    def url(self, anchor: str = "", **changes: object) -> str:
        """Returns the address of the page with these parameters changed."""
        wanted = asdict(replace(self, **changes))  # type: ignore[arg-type]
        given = {name: value for name, value in wanted.items() if value != getattr(DEFAULT, name)}
        return f"/{'?' if given else ''}{urlencode(given, safe='/')}{'#' if anchor else ''}{anchor}"


DEFAULT = PageRequest()


def read_page_request(query: Mapping[str, str]) -> PageRequest:
    """Returns the parameters that make sense."""
    return PageRequest(
        service=_text(query.get("service", "")),
        node=_text(query.get("node", "")),
        find=_text(query.get("find", "")).lower(),
        state=_choice(query.get("state", ""), STATES, ""),
        sort=_choice(query.get("sort", ""), SORTS, "worst"),
        page=_number(query.get("page", "")),
        fleet=_number(query.get("fleet", "")),
    )


def _text(value: str) -> str:
    value = value.strip()
    return value if len(value) <= LONGEST_NAME and value.isprintable() else ""


def _choice(value: str, known: tuple[str, ...], default: str) -> str:
    return value if value in known else default


def _number(value: str) -> int:
    return int(value) if value.isascii() and value.isdigit() and 1 <= int(value[:6]) <= LAST_PAGE else 1
