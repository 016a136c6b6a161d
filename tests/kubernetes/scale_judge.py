"""Judges what scalers wrote by the API server's audit log and the rows in Postgres, and by nothing of the product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg

from app.store.database.urls import libpq_url
from tests.kubernetes.audit import ScaleWritten

QUIET = timedelta(minutes=10)
ROWS = """
    SELECT plan.generation, plan.at, name, replicas, wanted, state, resource_version, outcome
    FROM scale_decision JOIN scale_plan AS plan USING (generation) ORDER BY plan.generation
"""


@dataclass(frozen=True, slots=True)
class DecidedRow:
    """A row of a plan as Postgres has it."""

    generation: int
    at: datetime
    name: str
    replicas: int
    wanted: int
    state: str
    version: str
    outcome: str


def read_rows(database_url: str) -> list[DecidedRow]:
    with psycopg.connect(libpq_url(database_url)) as connection:
        return [DecidedRow(*row) for row in connection.execute(ROWS)]


@dataclass(frozen=True, slots=True)
class ScaleJudge:
    """What was written by scalers, as `user`, and by others, and what had been decided."""

    user: str
    written: Sequence[ScaleWritten]
    rows: Sequence[DecidedRow]
    begins: Mapping[str, int]  # replicas by name, before any write

    @property
    def ours(self) -> list[ScaleWritten]:
        """Returns the writes of numbers; a patch settles one whose answer was lost, and keeps the number."""
        return [each for each in self.written if each.user == self.user and each.verb == "update"]

    def violations(self) -> Iterator[str]:
        yield from self.lost_updates()
        yield from self.older_over_newer()
        yield from self.too_soon_after_others()
        yield from self.wrong_records()

    def lost_updates(self) -> Iterator[str]:
        """A write replaces the number that its decision was made from, whoever wrote that."""
        numbers = dict(self.begins)
        for each in self.written:
            if each in self.ours and (row := self._row(each)) and row.replicas != numbers[each.name]:
                yield f"{each} replaced {numbers[each.name]}, and was decided from {row}"
            if each.user == self.user and each.verb == "patch" and each.replicas != numbers[each.name]:
                yield f"{each} changed {numbers[each.name]}, to settle a write"
            numbers[each.name] = each.replicas

    def older_over_newer(self) -> Iterator[str]:
        """Generations only rise, and no plan that had been recorded before a write wanted another number."""
        last: dict[str, int] = {}
        for each in self.ours:
            row = self._row(each)
            if row is None:
                yield f"{each} was never decided"
                continue
            if row.generation <= last.get(each.name, 0):
                yield f"{each} of plan {row.generation} came after plan {last[each.name]}"
            last[each.name] = row.generation
            for newer in self.rows:
                is_newer = newer.name == each.name and newer.generation > row.generation and newer.at < each.at
                if is_newer and newer.wanted != each.replicas:
                    yield f"{each} of plan {row.generation} came after {newer}"

    def too_soon_after_others(self) -> Iterator[str]:
        numbers, others = dict(self.begins), []
        for each in self.written:
            if each.user != self.user and each.replicas != numbers[each.name]:  # else nothing has changed
                others.append(each)
            numbers[each.name] = each.replicas
        for each in self.ours:
            for other in others:
                if other.name == each.name and other.after < each.after and each.at - other.at < QUIET:
                    yield f"{each} came {each.at - other.at} after {other}"

    def wrong_records(self) -> Iterator[str]:
        """What is recorded as written was written, and nothing that was is recorded as not done."""
        done = [row for each in self.ours if (row := self._row(each))]
        for row in self.rows:
            is_done = any(row is each for each in done)
            if row.state == "written" and not is_done:
                yield f"{row} was not written"
            if is_done and row.state != "written" and "has changed it since" not in row.outcome:
                yield f"{row} was written"

    def figures(self) -> dict[str, int]:
        states = Counter(row.state for row in self.rows if row.version)
        return {
            "plans": len({row.generation for row in self.rows}),
            "writes": len(self.ours),
            "settled by a patch": sum(each.user == self.user and each.verb == "patch" for each in self.written),
            "writes of others": sum(each.user != self.user for each in self.written),
            **{f"begun and {state}": count for state, count in sorted(states.items())},
        }

    def _row(self, each: ScaleWritten) -> DecidedRow | None:
        """Returns the decision that a write came of: the newest of those that had been made, were it refused before."""
        begun = [
            row for row in self.rows if (row.name, row.version, row.wanted) == (each.name, each.version, each.replicas)
        ]
        return max((row for row in begun if row.at < each.at), key=lambda row: row.generation, default=None)
