"""Writes the replicas of one workload, and says for certain what became of it wherever that can be known.

Why no older plan is written over a newer one, with rights to `scale` alone and no annotation of ours:

1. A write carries the resourceVersion at which the workload was read and judged. The server refuses it once anything
   of the workload has changed: replicas, annotations, who owns a field. So of all writes at one version, one is done.
2. Right before, the database is asked by `may_write(version)`, which records the version with the plan's generation
   and refuses a scaler that no longer leads. One that stands still after that and goes on sends its write at an old
   version. Where a newer plan has written since, the version is newer, and the server refuses.
3. A newer plan that keeps the number writes nothing, so the version may still be the old one. `settle_write` closes
   this: it takes the version of a write that has no recorded answer, reads the workload back, and if that still is at
   the version makes a newer one with the same replicas (a server-side apply by a manager of its own). From then on the
   old write is refused. A new leader settles what is open before the first plan of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from clusters.estate import WorkloadName
from clusters.objects import ClusterObjects, KubeObject, read_list, read_mapping, read_text, read_whole
from clusters.reading.workloads import SCALED
from clusters.scaling.adoption import WantedReplicas, find_hold, read_replicas
from clusters.scaling.annotations import read_adoption
from clusters.scaling.field_writers import is_ours
from clusters.scaling.outcomes import AGAIN, MayWrite, OpenWrite, WriteOutcome
from clusters.scaling.ownership import SCALERS, read_writers
from clusters.scaling.server import AnswerLost, NotSent, ScaleAnswer, ScaleServer
from clusters.scaling.sightings import Sighting, read_generation, read_uid
from clusters.scaling.steps import bound_replicas

ATTEMPTS = 4  # of a write to a workload that changes meanwhile, though nothing that matters
CHANGED = (409, 410)  # statuses of a workload that has changed since it was read
NOT_DONE = "its answer was lost, and it was not done and no longer can be"  # as the workload has a newer version
AGES_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A workload as it is now, its version, and the autoscalers of its namespace."""

    item: KubeObject
    version: str
    objects: ClusterObjects


class _Unread(Exception):
    """A workload, or whatever says who owns it, could not be read; the message says why."""

    def __init__(self, reason: str, asked_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.asked_seconds = asked_seconds


class _Gone(_Unread):
    """There is no such workload any more."""


@dataclass(frozen=True, slots=True)
class KubernetesEngine:
    """An API server as what takes replicas."""

    server: ScaleServer

    def write(self, wanted: WantedReplicas, may_write: MayWrite) -> WriteOutcome:
        return write_replicas(self.server, wanted, may_write)

    def settle(self, tried: OpenWrite) -> WriteOutcome:
        if tried.workload.kind not in SCALED:  # of another engine, which a scaler asked before
            return WriteOutcome("unknown", "its answer was lost, and no scaler asks its engine any more", tried.version)
        return settle_write(self.server, tried)


def write_replicas(cluster: ScaleServer, wanted: WantedReplicas, may_write: MayWrite) -> WriteOutcome:
    """Writes the wanted replicas once, unless something holds the workload or it is not as it was decided on."""
    return _Write(cluster, wanted, may_write).run()


class _Write:
    """One write. The workload is read and judged before each try, and read again where the server says it changed."""

    def __init__(self, cluster: ScaleServer, wanted: WantedReplicas, may_write: MayWrite) -> None:
        self._cluster, self._wanted, self._may_write = cluster, wanted, may_write
        self._version = self._reason = ""  # of the last try

    def run(self) -> WriteOutcome:
        for _ in range(ATTEMPTS):
            outcome = self._try()
            if outcome is not None:
                return outcome
        return WriteOutcome("not written", f"{self._reason}, {ATTEMPTS} times", self._version, is_refused=True)

    def _try(self) -> WriteOutcome | None:
        """Returns what became of it; None if it has changed, and is to be read again."""
        try:
            reading = _read(self._cluster, self._wanted.adopted.name)
        except _Gone as gone:
            return WriteOutcome("not written", str(gone))
        except _Unread as unread:
            return WriteOutcome("not written", str(unread), is_refused=True, asked_seconds=unread.asked_seconds)
        self._version = reading.version
        hold = _find_hold(reading, self._wanted)
        if hold:
            return WriteOutcome("not written", hold, reading.version)
        if not self._may_write(reading.version):
            return WriteOutcome("untried", "another scaler leads, or another plan has come", reading.version)
        return self._send(reading)

    def _send(self, reading: _Reading) -> WriteOutcome | None:
        name, version = self._wanted.adopted.name, reading.version
        tried = OpenWrite(name, self._wanted.adopted.generation, version, self._wanted.replicas)
        try:
            answer = self._cluster.put_scale(name, read_uid(reading.item), version, self._wanted.replicas)
        except NotSent as failed:
            return WriteOutcome("not written", f"the API server cannot be reached: {failed}", version, is_refused=True)
        except AnswerLost as lost:
            return self._settle(tried, str(lost))
        if answer.status < 300:
            # A server leaves 0 out of a Scale. A proxy may answer for it, and a webhook may change the number.
            if "spec" in answer.body and (read_whole(answer.body, "spec", "replicas") or 0) == tried.replicas:
                return WriteOutcome("written", version=version)
            return self._settle(tried, "its answer is not the number that was sent")
        asked_seconds = answer.retry_seconds or 0.0
        if not answer.is_refusal:
            return self._settle(tried, answer.reason, asked_seconds)
        if answer.status in CHANGED:
            self._reason = answer.reason
            return None
        reason = f"the API server refused it: {answer.reason}"
        return WriteOutcome("not written", reason, version, is_refused=True, asked_seconds=asked_seconds)

    def _settle(self, tried: OpenWrite, cause: str, asked_seconds: float = 0.0) -> WriteOutcome:
        outcome = settle_write(self._cluster, tried)
        reason = f"{outcome.reason} ({cause})" if outcome.reason else ""
        return replace(outcome, reason=reason, asked_seconds=asked_seconds)


def settle_write(cluster: ScaleServer, tried: OpenWrite) -> WriteOutcome:
    """Says what became of a write that has no answer; unless it is unknown, it is not done later than this says so."""
    name, version = tried.workload, tried.version
    try:
        reading = _read(cluster, name)
        landed = _compare(reading, tried)
        if landed is None and reading.version == version:
            answer = cluster.settle_scale(name, version, read_replicas(reading.item))
            if answer.status < 300 and read_text(answer.body, "metadata", "resourceVersion") not in ("", version):
                return WriteOutcome("not written", NOT_DONE, version, is_refused=True)
            reading = _read(cluster, name)  # it was done meanwhile, or settled with an error for an answer
            landed = _compare(reading, tried)
    except _Gone:  # and no write reaches another of its name, which has another uid
        return WriteOutcome("unknown", "its answer was lost, and the workload is gone", version)
    except (_Unread, AnswerLost, NotSent) as failed:
        reason = f"its answer was lost, and it cannot be read back: {failed}"
        return WriteOutcome("unknown", reason, version, is_open=True)
    if landed is not None:
        return landed
    if reading.version != version:
        return WriteOutcome("not written", NOT_DONE, version, is_refused=True)
    return WriteOutcome("unknown", "its answer was lost, and it may yet be done", version, is_open=True)


def _read(cluster: ScaleServer, name: WorkloadName) -> _Reading:
    """Reads the workload, then who might scale it: of all that decides, this is what no version guards."""
    found = _ask(lambda: cluster.read(name), f"{name} could not be read")
    version = read_text(found.body, "metadata", "resourceVersion")
    if not version:
        raise _Unread(f"{name} could not be read: the server answered with something else")
    lists = {kind: _list(cluster, kind, name.namespace) for kind in SCALERS}
    return _Reading(found.body, version, ClusterObjects(lists, server_time=found.server_time))


def _list(cluster: ScaleServer, kind: str, namespace: str) -> tuple[KubeObject, ...]:
    listed = _ask(lambda: cluster.list_autoscalers(kind, namespace), f"{kind}s could not be read", absent=404)
    if listed.status == 200 and "items" not in listed.body:
        raise _Unread(f"{kind}s could not be read: the server answered with something else")
    return tuple(read_list(listed.body, "items"))


def _ask(ask: Callable[[], ScaleAnswer], failure: str, absent: int = 0) -> ScaleAnswer:
    try:
        answer = ask()
    except (AnswerLost, NotSent) as failed:
        raise _Unread(f"{failure}: {failed}") from None
    if answer.status not in (200, absent):
        unread = _Gone if answer.status == 404 else _Unread
        raise unread(f"{failure}: {answer.reason}", answer.retry_seconds or 0.0)
    return answer


def _find_hold(reading: _Reading, wanted: WantedReplicas) -> str:
    """Returns why nothing may be written to the workload as it is now."""
    adopted, item = wanted.adopted, reading.item
    if adopted.hold:
        return adopted.hold
    now = read_adoption(read_mapping(item, "metadata", "annotations"))
    if now is None or (now.service, now.mode, now.bounds) != (adopted.service, adopted.mode, adopted.bounds):
        return f"its annotations have changed; {AGAIN}"
    if now.mode == "advisory":
        return "its mode is advisory"
    if read_uid(item) != adopted.uid:
        return f"it has been made again; {AGAIN}"
    if read_generation(item) != adopted.generation or read_replicas(item) != adopted.replicas:
        return f"it has changed since it was decided; {AGAIN}"
    if bound_replicas(adopted.replicas, wanted.replicas, adopted.bounds) != wanted.replicas:
        return f"{adopted.replicas} to {wanted.replicas} replicas is beyond its bounds or one step"
    # At the generation of the decision, whatever changed replicas at an unknown time is as old as it was then.
    sighting = Sighting(adopted.generation, AGES_AGO)
    return find_hold(item, adopted.name.kind, now, reading.objects, sighting)


def _compare(reading: _Reading, tried: OpenWrite) -> WriteOutcome | None:
    """Returns what became of a write by what is there now; None if it has not been done."""
    raised = read_generation(reading.item) - tried.generation
    if raised == 0:
        return None
    if raised < 0:
        return WriteOutcome("not written", f"it has been made again; {AGAIN}", tried.version)
    holders = [writer for writer in read_writers(reading.item) if writer.has_replicas]
    is_there = read_replicas(reading.item) == tried.replicas
    if is_there and holders and all(is_ours(writer.manager) for writer in holders):
        return WriteOutcome("written", version=tried.version)
    others = ", ".join(writer.manager for writer in holders) or "somebody"
    if raised == 1:  # one change alone, which was not this one
        return WriteOutcome("not written", f"{others} changed it at the same time; {AGAIN}", tried.version)
    return WriteOutcome("unknown", f"{others} has changed it since; {AGAIN}", tried.version)
