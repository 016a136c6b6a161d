"""Which files of tests there are, in the order in which workers take them: the longest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

KEY = "workers/seconds"
SLOW_SECONDS, QUICK_SECONDS = 2.0, 0.05  # of a test in a file that no run has timed yet


def files_of(items: Sequence[pytest.Item]) -> dict[str, list[int]]:
    """The places of tests in the collection, by file; one worker takes all that share a package's fixture."""
    found: dict[str, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        found[_shared_package(item) or str(item.path)].append(place)
    return found


def _shared_package(item: pytest.Item) -> str:
    """Returns the package for which a fixture of the test is made once; empty if there is none."""
    fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return next((made[-1].baseid for made in fixtures.values() if made[-1].scope == "package"), "")


def longest_first(config: pytest.Config, items: Sequence[pytest.Item]) -> list[list[int]]:
    """The tests of each file; a file that begins last and takes long would keep one worker busy alone."""
    known = _known_seconds(config)

    def seconds(file: list[int]) -> float:
        return sum(known.get(items[place].nodeid, _guess(items[place])) for place in file)

    return sorted(files_of(items).values(), key=seconds, reverse=True)


def remember(config: pytest.Config, seconds: dict[str, float]) -> None:
    """Keeps the seconds of tests for the next run, beside those of tests that did not run."""
    if cache := getattr(config, "cache", None):
        cache.set(KEY, _known_seconds(config) | {name: round(value, 2) for name, value in seconds.items()})


def _known_seconds(config: pytest.Config) -> dict[str, float]:
    cache: pytest.Cache | None = getattr(config, "cache", None)
    return cache.get(KEY, None) or {} if cache else {}


def _guess(item: pytest.Item) -> float:
    return SLOW_SECONDS if item.get_closest_marker("slow") or _shared_package(item) else QUICK_SECONDS
