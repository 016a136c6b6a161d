"""What takes replicas, whichever engine it is, and what became of a write to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from clusters.estate import WorkloadName
from clusters.scaling.adoption import WantedReplicas

WriteState: TypeAlias = Literal["written", "not written", "unknown", "untried"]
MayWrite: TypeAlias = Callable[[str], bool]  # gets the version at which it is to be written
AGAIN = "decided again next time"


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """What became of a write: its state, and a sentence that says why if it is not written.

    Written means that what was wanted is there, by us. After a lost answer it may be a newer plan that wrote the same.
    Untried means that it may not be sent now.
    """

    state: WriteState
    reason: str = ""
    version: str = ""  # at which it was last tried: a resourceVersion, or when it was sent
    is_open: bool = False  # it may yet be done: it is asked again
    is_refused: bool = False  # or not answered, and not done: the same can be tried again later
    asked_seconds: float = 0.0  # how long the server wants to be left alone


@dataclass(frozen=True, slots=True)
class OpenWrite:
    """A write without an answer: of which workload at which generation and version, and to how many replicas."""

    workload: WorkloadName
    generation: int
    version: str
    replicas: int


class ReplicaEngine(Protocol):
    """A connection to an engine that runs replicas; several threads may use it."""

    def write(self, wanted: WantedReplicas, may_write: MayWrite) -> WriteOutcome:
        """Writes the wanted replicas once, unless something holds the workload or it is not as it was decided on."""

    def settle(self, tried: OpenWrite) -> WriteOutcome:
        """Says what became of a write that has no answer."""
