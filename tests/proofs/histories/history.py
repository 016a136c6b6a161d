"""What clients of the API did and saw, with times by one clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

NEVER = float("inf")
ABSENT = 0  # the value of an object that is not there; others are unique among all writes


@dataclass(slots=True)
class Write:
    """One change that a client wanted, however often it sent it. `version` is None where no answer came."""

    name: str
    value: int
    began: float
    ended: float = NEVER
    version: int | None = None
    only_over: int | None = None  # If-Match; 0: If-None-Match
    key: str = ""  # of idempotency
    versions: list[int] = field(default_factory=list)  # one of each answer
    is_refused: bool = False  # as its condition did not hold, or there was nothing to delete


@dataclass(frozen=True, slots=True)
class Read:
    """What a client read: a value of a version, or ABSENT."""

    name: str
    value: int
    version: int
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change that a watch told."""

    version: int
    name: str
    value: int


@dataclass(slots=True)
class WatchLog:
    """What one watcher saw over all its connections; from `start` on, which it did not see."""

    start: int
    events: list[WatchEvent] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Decision:
    """An assignment that a leader wrote, or that a node polled."""

    node: str
    version: int
    epoch: int
    generation: int
    holder: str = ""  # of whoever wrote it


@dataclass(slots=True)
class History:
    """All that happened."""

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    watches: list[WatchLog] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)  # in the order in which leaders got to know of them
    polls: dict[str, list[Decision]] = field(default_factory=dict)  # of each node


Kind = Literal[
    "lost update", "stale read", "phantom read", "read of the future", "two effects of one write", "order of writes",
    "false refusal", "watch gap", "watch repeat", "watch order", "watch value", "two leaders", "old leader",
    "poll goes back", "poll of nothing",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that no correct API does."""

    kind: Kind
    what: str
