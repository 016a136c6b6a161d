"""Reads recorded decisions: the plan, its desired state, and the snapshot that it was made from."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from app.control.domain.decision import Draft
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.record.encoding import join_snapshot
from app.manifests.model import Fields
from app.store.plans import pieces, plan_reads, plans
from solvers.planning.plan import Plan

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """A recorded decision. `snapshot` are the hashes of its parts."""

    generation: int
    at: datetime
    lane: str
    state: str
    base: int
    plan: Plan
    desired: Desired
    drafts: tuple[Draft, ...]
    outcome: str
    versions: Mapping[str, str]
    held_back: Sequence[Fields]
    snapshot: Sequence[str]


def read_plan(connection: Connection, generation: int) -> RecordedPlan | None:
    """Returns the decision of this generation, if it is still stored."""
    row = plans.read_row(connection, generation)
    if row is None:
        return None
    body, desired = bytes(row.body), bytes(row.desired)
    found = pieces.get(connection, [body, desired])
    solved = row.solved_by
    return RecordedPlan(
        generation=generation,
        at=row.at,
        lane=row.lane,
        state=row.state,
        base=row.base or 0,
        plan=msgspec.json.decode(found[body], type=Plan),
        desired=msgspec.json.decode(found[desired], type=dict[str, NodeDesired]),
        drafts=msgspec.convert(solved.get("drafts", ()), tuple[Draft, ...]),
        outcome=solved.get("outcome", ""),
        versions=solved.get("versions", {}),
        held_back=solved.get("heldBack", []),
        snapshot=row.snapshot,
    )


def read_learned(connection: Connection) -> tuple[frozenset[str], Mapping[str, ExpectedLoad]]:
    """Returns the shapes whose first instance passed its trial, and the loads of the newest decision, by service."""
    number = plan_reads.newest(connection)
    return (plans.read_proven_shapes(connection), _read_loads(connection, number)) if number else (frozenset(), {})


def read_last_loads(connection: Connection) -> Mapping[str, ExpectedLoad]:
    """Returns the loads that the newest decision was made for, by service; none without any."""
    number = plan_reads.newest(connection)
    return _read_loads(connection, number) if number else {}


def _read_loads(connection: Connection, number: int) -> Mapping[str, ExpectedLoad]:
    """Returns the loads that a decision was made for, by service.

    Returns none where its snapshot is not stored, or of another version: no leader can depend on that.
    """
    row = plans.read_row(connection, number)
    hashes = [bytes.fromhex(digest) for digest in row.snapshot] if row else []
    found = pieces.get(connection, hashes) if hashes else {}
    if not hashes or found.keys() < set(hashes):
        return {}
    try:
        return join_snapshot([found[digest] for digest in hashes]).expected
    except msgspec.ValidationError as error:
        log.warning("snapshot_unreadable", extra={"plan": number, "reason": str(error)})
        return {}


def snapshot_of(connection: Connection, recorded: RecordedPlan) -> Snapshot:
    """Returns the snapshot that the decision was made from."""
    hashes = [bytes.fromhex(digest) for digest in recorded.snapshot]
    found = pieces.get(connection, hashes)
    return join_snapshot([found[digest] for digest in hashes])
