"""Checks a history: objects are linearizable, watches whole and in order, one leader at a time.

Each change has a version of its own, and versions order all changes. So no order needs to be searched for: a history is
linearizable if that order agrees with the clock, and each read with that order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.proofs.histories.history import ABSENT, Anomaly, History, Read, WatchLog, Write


def check(history: History) -> list[Anomaly]:
    found = _Checker(history)
    return [
        *found.effects(),
        *found.order(),
        *found.conditions(),
        *found.reads(),
        *(anomaly for watch in history.watches for anomaly in found.watch(watch)),
        *_leaders(history),
        *_polls(history),
    ]


class _Checker:
    """The writes of a history, with the versions that answers, reads and watches tell of them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._by_value = {write.value: write for write in history.writes if write.value != ABSENT}
        self._seen: defaultdict[int, set[int]] = defaultdict(set)  # versions of each value
        for write in history.writes:
            if write.value != ABSENT:
                self._seen[write.value] |= set(write.versions)
        for read in history.reads:
            if read.value != ABSENT:
                self._seen[read.value].add(read.version)
        for log in history.watches:
            for event in log.events:
                if event.value != ABSENT:
                    self._seen[event.value].add(event.version)
        for value, versions in self._seen.items():
            if value in self._by_value and self._by_value[value].version is None:
                self._by_value[value].version = min(versions, default=None)
        self._of: defaultdict[str, list[Write]] = defaultdict(list)
        for write in history.writes:
            if not write.is_refused:
                self._of[write.name].append(write)

    def effects(self) -> Iterator[Anomaly]:
        """One write has one version, however often it was sent; and no version is that of two writes."""
        for value, versions in self._seen.items():
            if len(versions) > 1:
                yield Anomaly("two effects of one write", f"value {value} has the versions {sorted(versions)}")
        owners: dict[int, Write] = {}
        for write in self._history.writes:
            for version in set(write.versions):
                if owners.setdefault(version, write) is not write:
                    yield Anomaly("two effects of one write", f"version {version} was given twice")
            if len(set(write.versions)) > 1 and write.value == ABSENT:
                yield Anomaly("two effects of one write", f"a deletion has the versions {sorted(write.versions)}")

    def order(self) -> Iterator[Anomaly]:
        """What ended before another began has the lower version."""
        known = sorted((write for write in self._history.writes if write.version), key=lambda write: write.began)
        highest, ended = 0, sorted(known, key=lambda write: write.ended)
        at = 0
        for write in known:
            while ended[at].ended < write.began:
                highest = max(highest, ended[at].version or 0)
                at += 1
            if (write.version or 0) < highest:
                yield Anomaly("order of writes", f"version {write.version} began after {highest} had ended")

    def conditions(self) -> Iterator[Anomaly]:
        """A conditional write replaced what it named; a refused one met something else."""
        for write in self._history.writes:
            if write.only_over is None:
                continue
            others = [other for other in self._of[write.name] if other is not write]
            if not write.is_refused and write.version is not None:
                between = [o.version for o in others if o.version and write.only_over < o.version < write.version]
                if write.only_over and between:
                    yield Anomaly("lost update", f"{write.version} over {write.only_over} replaced {between}")
                if not write.only_over and self._was_there(write):
                    yield Anomaly("lost update", f"{write.version} created {write.name}, which was there")
            elif write.is_refused and not any(
                other.began < write.ended and (other.version is None or other.version > write.only_over)
                for other in others
            ):
                yield Anomaly("false refusal", f"{write.name} was at {write.only_over} all the time")

    def _was_there(self, created: Write) -> bool:
        """Returns whether the change before this one left the object there, if that is known."""
        before = [w for w in self._of[created.name] if w.version and w.version < (created.version or 0)]
        unknown = any(w.value == ABSENT and w.version is None for w in self._of[created.name])
        last = max(before, key=lambda write: write.version or 0, default=None)
        return last is not None and last.value != ABSENT and not unknown

    def reads(self) -> Iterator[Anomaly]:
        for read in self._history.reads:
            yield from self._read(read)
        seen: dict[str, list[Read]] = defaultdict(list)
        for read in sorted(self._history.reads, key=lambda read: read.began):
            if read.value != ABSENT:
                if any(other.version > read.version and other.ended < read.began for other in seen[read.name]):
                    yield Anomaly("stale read", f"{read.name} at {read.version} after a newer version was read")
                seen[read.name].append(read)

    def _read(self, read: Read) -> Iterator[Anomaly]:
        writes = self._of[read.name]
        over = [write for write in writes if write.version and write.ended < read.began]
        if read.value == ABSENT:
            there = [write for write in over if write.value != ABSENT]
            last = max((write.version or 0 for write in there), default=0)
            if last and not any(
                write.value == ABSENT and write.began < read.ended and (write.version is None or write.version > last)
                for write in writes
            ):
                yield Anomaly("stale read", f"{read.name} was not found, after version {last} was written")
            return
        write = self._by_value.get(read.value)
        if write is None or write.name != read.name or write.is_refused:
            yield Anomaly("phantom read", f"nobody wrote {read.value} to {read.name}")
            return
        if write.began > read.ended:
            yield Anomaly("read of the future", f"{read.value} was read before it was written")
        newer = [other.version for other in over if other.version and other.version > read.version]
        if newer:
            yield Anomaly("stale read", f"{read.name} at {read.version} after {max(newer)} was written")

    def watch(self, log: WatchLog) -> Iterator[Anomaly]:
        """Each change between the first and the last that a watch told is told once, in order, as it was written."""
        told = [event.version for event in log.events]
        for before, after in pairwise(told):
            if after == before:
                yield Anomaly("watch repeat", f"{after} was told twice")
            elif after < before:
                yield Anomaly(
                    "watch repeat" if after in told[: told.index(before)] else "watch order",
                    f"{after} came after {before}",
                )
        by_version = {event.version: event for event in log.events}
        last = max(told, default=0)
        for write in self._history.writes:
            if write.version is None or not log.start < write.version <= last:
                continue
            event = by_version.get(write.version)
            if event is None:
                yield Anomaly("watch gap", f"{write.version} of {write.name} was not told, and {last} was")
            elif (event.name, event.value) != (write.name, write.value):
                yield Anomaly("watch value", f"{write.version} was told as {event.name}: {event.value}")


def _leaders(history: History) -> Iterator[Anomaly]:
    """An epoch has one holder, and no decision of an older epoch comes after one of a newer."""
    holders: dict[int, str] = {}
    newest = (0, 0)
    for decision in sorted(history.decisions, key=lambda decision: decision.version):
        if holders.setdefault(decision.epoch, decision.holder) != decision.holder:
            yield Anomaly("two leaders", f"epoch {decision.epoch}: {holders[decision.epoch]} and {decision.holder}")
        if (decision.epoch, decision.generation) < newest:
            yield Anomaly("old leader", f"{decision.epoch}, {decision.generation} came after {newest}")
        newest = max(newest, (decision.epoch, decision.generation))


def _polls(history: History) -> Iterator[Anomaly]:
    """A node gets only what was decided, and nothing older than it has."""
    decided = {(one.node, one.version): (one.epoch, one.generation) for one in history.decisions}
    for node, polls in history.polls.items():
        for before, after in pairwise(polls):
            if (after.version, after.epoch, after.generation) <= (before.version, before.epoch, before.generation):
                yield Anomaly("poll goes back", f"{node} got {after.version} after {before.version}")
        for poll in polls:
            if decided.get((node, poll.version)) != (poll.epoch, poll.generation):
                yield Anomaly("poll of nothing", f"{node} got {poll}, decided as {decided.get((node, poll.version))}")
