"""Judges how the processes of jobs end: the job is done, it has failed for good, or it is started again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from agents.contract.assignments import AssignedInstance, JobTerms
from agents.host import durable

DONE, FAILED = "job_done", "job_failed"  # the reasons under which the control plane learns of it
EXITED = "exited"  # by itself, and it is started again
UNKNOWN = -1
MOST_ENDED = 32  # processes whose output is kept, up to 2 MiB each


class ExitVerdict(StrEnum):
    """The meaning of an exit."""

    DONE = "done"
    FAILED = "failed"
    AGAIN = "again"


class EndedCopy(msgspec.Struct, frozen=True, rename="camel"):
    """A job's process that is gone; its output is kept for a while."""

    instance: str
    copy: str


class ExitRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The memory of exits that survives a restart of the agent."""

    over: dict[str, JobEnding] = {}
    ended: tuple[EndedCopy, ...] = ()


class JobEnding(msgspec.Struct, frozen=True, rename="camel"):
    """The end of a job on this node."""

    reason: str
    message: str
    exit_code: int


def judge_exit(terms: JobTerms, code: int | None, units: float, short_before: float | None) -> ExitVerdict:
    """Returns what an exit means; `short_before` are the units at an earlier exit that was done, but short of them.

    A machine that shuts down also makes well-behaved programs exit with 0. So a job that is short of its declared work
    is done only once another process, which continued from the last save, has ended in the same way without progress.
    """
    if code is None:
        return ExitVerdict.AGAIN
    if code in terms.failed_codes:
        return ExitVerdict.FAILED
    if code not in terms.done_codes:
        return ExitVerdict.AGAIN
    is_short = 0 < units < terms.units
    return ExitVerdict.AGAIN if is_short and (short_before is None or units > short_before) else ExitVerdict.DONE


class JobExits:
    """Remembers the jobs that are over here until they are no longer assigned, also across a restart of the agent."""

    def __init__(self, path: Path | None = None, metered_units: Callable[[str], float] = lambda copy: 0.0) -> None:
        self._path = path
        self.metered_units = metered_units  # of a copy, as its metrics count them
        record = _read(path)
        self._over: dict[str, JobEnding] = record.over
        self._ended = record.ended
        self._short: dict[str, float] = {}
        self._codes: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._units: dict[str, float] = {}  # at the last exit
        self._progressed: dict[str, bool] = {}  # between the last two exits

    def note(self, instance: AssignedInstance, code: int | None, units: float) -> ExitVerdict:
        """Judges an exit, and records it on disk if the job is over. Raises OSError, and has then noted nothing."""
        terms = instance.terms or JobTerms()
        verdict = judge_exit(terms, code, units, self._short.get(instance.id))
        if verdict is not ExitVerdict.AGAIN:
            assert code is not None
            done = verdict is ExitVerdict.DONE
            message = f"its process ended with exit code {code}{f' at {units:,.0f}' if units else ''}"
            self._write({**self._over, instance.id: JobEnding(DONE if done else FAILED, message, code)})
        elif code is not None and code in terms.done_codes:
            self._short[instance.id] = units
        self._progressed[instance.id] = units > self._units.get(instance.id, 0.0)
        self._units[instance.id] = units
        self._codes[instance.id] = UNKNOWN if code is None else code
        self._counts[instance.id] = self._counts.get(instance.id, 0) + 1
        return verdict

    def over(self, wanted: Collection[AssignedInstance]) -> Mapping[str, tuple[str, str]]:
        """Returns why jobs are not started again, and forgets those that are no longer assigned."""
        names = {instance.id for instance in wanted}
        if not self._over.keys() <= names:
            self._write({name: ending for name, ending in self._over.items() if name in names})
        self._short = {name: units for name, units in self._short.items() if name in names}
        self._codes = {name: code for name, code in self._codes.items() if name in names}
        self._units = {name: units for name, units in self._units.items() if name in names}
        self._counts = {name: count for name, count in self._counts.items() if name in names}
        self._progressed = {name: further for name, further in self._progressed.items() if name in names}
        return {name: (ending.reason, ending.message) for name, ending in self._over.items()}

    def code(self, instance: str) -> int:
        """Returns the exit code of the instance's last process; -1 if none has ended, or it is unknown."""
        ending = self._over.get(instance)
        return ending.exit_code if ending else self._codes.get(instance, UNKNOWN)

    def note_gone(self, instance: str, copy: str) -> None:
        """Remembers a process that is gone, so that its output is kept: of the last so many."""
        ended = EndedCopy(instance, copy)
        if ended not in self._ended:  # an agent may die between this and the journal's line
            self._write(self._over, (*self._ended, ended)[-MOST_ENDED:])

    @property
    def ended(self) -> tuple[EndedCopy, ...]:
        """The processes of jobs that are gone, whose output is kept; the newest last."""
        return self._ended

    def has_progressed(self, instance: str) -> bool:
        """Returns whether the last process came further than the one before: then it is retried without delay."""
        return self._progressed.get(instance, False)

    def count(self, instance: str) -> int:
        """Returns how many of the instance's processes ended by themselves while this agent ran."""
        return self._counts.get(instance, 0)

    def _write(self, over: dict[str, JobEnding], ended: tuple[EndedCopy, ...] | None = None) -> None:
        record = ExitRecord(over, self._ended if ended is None else ended)
        if self._path is not None:
            durable.write(self._path, msgspec.json.encode(record))
        self._over, self._ended = record.over, record.ended


def _read(path: Path | None) -> ExitRecord:
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        if path is not None:
            return msgspec.json.decode(path.read_bytes(), type=ExitRecord)
    return ExitRecord()
