"""Adds up what the tests of a run cost, and says which cost more, or less, than their mark says."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support.meter.clock import Cost
from tests.support.soak import FAST

MOST_SECONDS = 0.5  # of a test that is not marked slow: three times what the mark says, so that noise fails none
LEAST_SECONDS = 0.05  # of one that is
DEAREST = 10
TOUR = "tests/tour/"  # stands for all slow tests where these are left out


class Tally:
    """A plugin of pytest in the process that hears of every test."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._collection_seconds = time.process_time()
        self.costs: list[Cost] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if cost := getattr(report, "cost", None):
            self.costs.append(Cost(**cost))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.costs:
            terminalreporter.section("CPU seconds")
            for line in self._write_lines():
                terminalreporter.line(line)

    def write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text("".join(json.dumps(asdict(cost)) + "\n" for cost in self.costs))

    def list_dear(self) -> list[Cost]:
        """Returns tests that need a mark and have none."""
        unmarked = [cost for cost in self.costs if not cost.is_slow and not cost.name.startswith(TOUR)]
        return [cost for cost in unmarked if cost.quick_seconds > MOST_SECONDS]

    def list_cheap(self) -> list[str]:
        """Returns functions that are marked and whose every case needs no mark."""
        marked: dict[str, list[float]] = defaultdict(list)
        for cost in self.costs:
            if cost.is_slow and cost.ran:
                marked[cost.name.partition("[")[0]].append(cost.quick_seconds)
        return [name for name, seconds in marked.items() if max(seconds) < LEAST_SECONDS]

    def describe_excess(self, budget: float) -> str:
        """Says by how much a run of all tests is over its budget; nothing if it is within."""
        quick = self._add_up() / self._find_factor()
        if quick <= budget:
            return ""
        return f"the run took {quick:.0f} CPU seconds of a quick machine, more than {budget:g}"

    def _write_lines(self) -> Iterator[str]:
        loop = statistics.median(cost.loop_seconds for cost in self.costs)
        shared = sum(cost.shared_seconds for cost in self.costs)
        tests = {mark: [cost for cost in self.costs if cost.is_slow is mark] for mark in (False, True)}
        for name, mark in (("tests that are not marked slow", False), ("slow tests", True)):
            yield f"{sum(cost.seconds for cost in tests[mark]):8.1f} {len(tests[mark]):6} {name}"
        yield f"{shared:8.1f}        what tests share: servers, fixtures of files"
        yield f"{self._collection_seconds:8.1f}        collection"
        yield f"{self._add_up():8.1f}        in all, where five million additions take {loop:.2f}"
        quick = self._add_up() / self._find_factor()
        yield f"{quick:8.1f}        on the quick machine of the limits; its second is {self._find_factor():.2f} here"
        yield "the dearest:"
        for cost in sorted(self.costs, key=lambda cost: -cost.seconds)[:DEAREST]:
            yield f"{cost.seconds:8.1f}        {cost.name}"
        if not FAST:
            yield from (f"is marked slow and needs less than {LEAST_SECONDS} s: {name}" for name in self.list_cheap())

    def _add_up(self) -> float:
        return self._collection_seconds + sum(cost.seconds + cost.shared_seconds for cost in self.costs)

    def _find_factor(self) -> float:
        return statistics.median(cost.factor for cost in self.costs)
