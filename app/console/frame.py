"""The frame around every page's content: navigation, the moment of its data, the time zone, who looks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

OFTEN_CHOSEN = (
    "UTC", "America/Los_Angeles", "America/Denver", "America/Chicago", "America/New_York", "America/Sao_Paulo",
    "Europe/London", "Europe/Berlin", "Europe/Helsinki", "Africa/Johannesburg", "Asia/Dubai", "Asia/Kolkata",
    "Asia/Shanghai", "Asia/Singapore", "Asia/Tokyo", "Australia/Sydney",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A page of the navigation."""

    label: str
    path: str

    def holds(self, here: str) -> bool:
        """Returns whether an address belongs to this entry."""
        return here == self.path or (self.path != "/" and here.startswith(f"{self.path}/"))


NAVIGATION = (
    NavigationEntry("Fleet", "/"),
    NavigationEntry("Services", "/services"),
    NavigationEntry("Plans", "/plans"),
    NavigationEntry("Money", "/money"),
    NavigationEntry("Events", "/events"),
    NavigationEntry("Audit", "/audit"),
    NavigationEntry("Jobs", "/jobs"),
    NavigationEntry("What-if", "/what-if"),
)


@dataclass(frozen=True, slots=True)
class PageFrame:
    """The surroundings of a page."""

    at: datetime  # of the data
    tenant: str = ""  # who looks; empty: sees everything
    zone: str = "UTC"
    path: str = "/"
    back: str = "/"  # the whole address, to come back to
    view: str = "/"  # the address that shows the same elsewhere
    refused: frozenset[str] = frozenset()  # paths of pages that the reader's token may not see

    @property
    def navigation(self) -> list[tuple[NavigationEntry, bool]]:
        """Returns the entries, each with whether the page belongs to it."""
        shown = [entry for entry in NAVIGATION if self.shows(entry.path)]
        return [(entry, entry.holds(self.path)) for entry in shown]

    @property
    def zones(self) -> list[str]:
        """Returns the time zones to choose from."""
        return list(dict.fromkeys((self.zone, *OFTEN_CHOSEN)))

    def shows(self, path: str) -> bool:
        """Returns whether the reader's token may see the page at this address."""
        return path not in self.refused

    def local(self, moment: datetime) -> datetime:
        return moment.astimezone(zone_of(self.zone))

    def is_today(self, moment: datetime) -> bool:
        return self.local(moment).date() == self.local(self.at).date()


@lru_cache(maxsize=100)
def zone_of(name: str) -> ZoneInfo:
    """Returns the time zone of this name; UTC for an unknown one."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def known_zone(name: str) -> str:
    """Returns the name if it is that of a time zone, else UTC."""
    return name if zone_of(name).key == name else "UTC"
