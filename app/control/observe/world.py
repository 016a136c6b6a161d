"""Caches the declared world: reads all of it once, then only the changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from app.control.domain.snapshot import DeclaredObject
from app.control.jobs.speeds import fill_learned_speeds
from app.store.fleet import observed
from app.store.plans.job_states import JobRow


@dataclass(slots=True)
class WorldCache:
    """Every declared object. Unchanged objects stay identical from read to read."""

    _version: int = -1
    _known: dict[tuple[str, str, str], DeclaredObject] = field(default_factory=dict)
    _declared: tuple[DeclaredObject, ...] = ()
    _learned: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by job
    _filled: tuple[DeclaredObject, ...] = ()  # with speeds that are learned

    def learn(self, jobs: Iterable[JobRow]) -> tuple[DeclaredObject, ...]:
        """Returns every object; jobs that declare no speed have the one that their states have learned."""
        learned = {f"{row.tenant}/{row.job}": speeds for row in jobs if (speeds := (row.detail or {}).get("learned"))}
        if learned != self._learned:
            self._learned = learned
            self._fill()
        return self._filled

    def _fill(self) -> None:
        self._filled = tuple(
            fill_learned_speeds(item, self._learned[item.full_name])
            if item.kind == "Job" and item.full_name in self._learned
            else item
            for item in self._declared
        )

    def read(self, connection: Connection) -> tuple[DeclaredObject, ...]:
        return self.read_at(connection, *observed.object_version(connection))

    def skip(self, before: int, after: int) -> None:
        """Counts the versions from `before` to `after`, which are this process's own statuses, as read.

        Where older ones were not read yet, none counts: the next look reads them all.
        """
        if self._version == before:
            self._version = after

    def read_at(self, connection: Connection, version: int, floor: int) -> tuple[DeclaredObject, ...]:
        """Returns the objects as of a version that was read before; changes up to the floor are no longer kept."""
        if version == self._version:
            return self._filled
        if not floor <= self._version <= version:  # deletions since then are not recorded
            known = {}
            rows = observed.world(connection)
        else:
            gone = observed.list_deleted_objects(connection, self._version)
            known = {key: item for key, item in self._known.items() if key not in gone}
            rows = observed.world(connection, self._version)
        before = self._known
        for kind, tenant, name, spec in rows:
            key = (kind, tenant, name)
            there = before.get(key)
            # The version also counts changes of the status.
            known[key] = there if there and there.spec == spec else DeclaredObject(kind, tenant, name, spec)
        if known != before:
            self._declared = tuple(known[key] for key in sorted(known))
            self._fill()
        self._version, self._known = version, known
        return self._filled
