"""A plan for replicas and its rows, one for each workload that is adopted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from app.manifests.words import Mode

KIND = "Scale"  # of events and entries of the audit
MOST_CHARACTERS = 500  # of a sentence
HIGHEST_COUNT = 2**31 - 1  # that Kubernetes and a column can hold


class ScaleState(StrEnum):
    """What has become of a decision about a workload's replicas."""

    STEADY = "steady"  # it has the replicas that it should have
    HELD = "held"  # another owns its replicas, or changed them lately
    ADVISED = "advised"
    PROPOSED = "proposed"  # waits for a person
    REJECTED = "rejected"
    APPROVED = "approved"  # by a person, or by the mode auto
    WRITING = "writing"  # the cluster may have been asked
    WRITTEN = "written"
    REFUSED = "refused"  # by the cluster, or not answered: the same is tried again later
    OVERTAKEN = "overtaken"  # by a newer plan, or by another's change in the cluster


def clean_text(text: str) -> str:
    """Returns what Postgres can store of a text that anybody may have written, and no more than people read."""
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")[:MOST_CHARACTERS]


class ScaleTarget(NamedTuple):
    """The name of a workload that is scaled: `shop/Deployment/ranker`."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return "/".join(self)


@dataclass(frozen=True, slots=True)
class ScaleDraft:
    """What a scaler decides for one workload; `hold` says who keeps it from being written."""

    target: ScaleTarget
    service: str
    mode: Mode
    replicas: int | None  # unknown where it was not read
    wanted: int | None  # unknown where its load was not measured, and never written then
    why: str
    hold: str = ""
    object_generation: int = 0  # of the workload's metadata, when it was read
    uid: str = ""  # another has another, though its name be the same
    is_blind: bool = False  # what it needs could not be read now, so what was decided of it stands, held

    def __post_init__(self) -> None:
        """Keeps of the sentences and numbers what a row can hold: one that cannot be stored would cost the plan."""
        for name in ("service", "why", "hold", "uid"):
            object.__setattr__(self, name, clean_text(getattr(self, name)))
        for name in ("replicas", "wanted"):
            number = getattr(self, name)
            if number is not None and not 0 <= number <= HIGHEST_COUNT:
                object.__setattr__(self, name, None)


@dataclass(frozen=True, slots=True)
class ScaleRow:
    """A decision as it is stored. `since` is the first plan that decided so."""

    generation: int
    target: ScaleTarget
    since: int
    service: str
    mode: Mode
    replicas: int | None
    wanted: int | None
    why: str
    hold: str
    object_generation: int
    uid: str
    state: ScaleState
    decided_by: str
    decided_at: datetime | None
    resource_version: str
    written_at: datetime | None
    settled_at: datetime | None
    outcome: str
    resumes: str  # the state in which a hold has found what is held; empty: none that stands
    is_blind: bool
    tries: int  # that were refused in a row, of this number and those before
    retry_at: datetime | None  # before then it is not tried


@dataclass(frozen=True, slots=True)
class ScalePause:
    """A pause of all scalers: its author, its begin and its reason."""

    by: str
    since: datetime
    message: str
    writing: int  # writes that had begun, which may still be done


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """A plan with its rows. It was decided at first at `at`, and once more, with the same result, at `confirmed_at`."""

    generation: int
    epoch: int
    at: datetime
    confirmed_at: datetime
    read_at: datetime
    rows: tuple[ScaleRow, ...]
    pause: ScalePause | None  # now, whichever plan this is

    @property
    def is_new(self) -> bool:
        """Returns whether nobody has decided the same again since it was made."""
        return self.at == self.confirmed_at
