"""Judges deployments of Ray Serve as they are now: whether they may be scaled, and what to do where they may not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from clusters.estate import MOST_REPLICAS, NOTHING, ClusterWorkload, Estate, WorkloadName
from clusters.ray_serve.dashboard import RayDeployment, RayReading
from clusters.ray_serve.services import RayAdoption
from clusters.savings.floors import ReplicaBounds
from clusters.scaling.adoption import AdoptedWorkload

QUIET_SECONDS = 600.0  # after another set a number
SCALABLE = "set external_scaler_enabled: true in its Serve config, and deploy it again"
PASSING = ("DELETING", "NOT_STARTED", "DEPLOY_FAILED", "UPDATING")  # statuses in which a number says nothing


@dataclass(frozen=True, slots=True)
class RaySighting:
    """The number of a deployment, since when it was seen, and whether another set it. Ray keeps neither."""

    deployed_at: int
    target: int
    since: float  # seconds of a clock that only goes forward
    wanted: frozenset[int]  # what we have wanted meanwhile, so that a change to it is ours
    hold: str = ""  # that another set it, and until when it is let alone

    def find_hold(self, now: float) -> str:
        """Returns the sentence on another's number; empty once that was long ago."""
        return self.hold if now < self.since + QUIET_SECONDS else ""


def note_numbers(
    reading: RayReading, seen: Mapping[WorkloadName, RaySighting], now: float
) -> dict[WorkloadName, RaySighting]:
    """Returns since when each deployment has had its number.

    A number that comes with another deployment of the application is decided on at once: Ray resets it there.
    """
    found = {}
    for name, each in reading.deployments.items():
        earlier = seen.get(name)
        if earlier and (earlier.deployed_at, earlier.target) == (each.deployed_at, each.target):
            found[name] = earlier
            continue
        is_same = earlier is not None and earlier.deployed_at == each.deployed_at
        is_foreign = is_same and earlier is not None and each.target not in earlier.wanted
        hold = _say_foreign(each.target, reading.server_time) if is_foreign else ""
        found[name] = RaySighting(each.deployed_at, each.target, now, frozenset(), hold)
    return found


def _say_foreign(target: int, now: datetime | None) -> str:
    until = f"until {now + timedelta(seconds=QUIET_SECONDS):%H:%M} UTC" if now else "for ten minutes"
    return f"somebody else set {target} replicas; nothing is written {until}"


def adopt(adoption: RayAdoption, found: RayDeployment, dashboard: str, hold: str) -> AdoptedWorkload:
    """Returns a deployment as a scaler decides on it."""
    return AdoptedWorkload(
        name=adoption.name,
        service=adoption.service,
        mode=adoption.mode,
        replicas=found.target,
        bounds=adoption.bounds,
        uid=dashboard,  # a deployment of this name on another Ray is another
        generation=found.deployed_at,  # deployed again, it has another specification
        promise=adoption.promise,
        hold=hold,
    )


def find_absence(found: RayDeployment | None) -> str:
    """Returns why nothing can be said of a deployment at all; empty if something can."""
    if found is None:
        return "Ray Serve has no such deployment; deploy it, or take its entry out of the file"
    if found.target > MOST_REPLICAS:
        return f"Ray is to run more than {MOST_REPLICAS:,} replicas of it; scale it by hand"
    return ""


def find_refusal(found: RayDeployment) -> str:
    """Returns the sentence on what in Ray keeps a deployment from being scaled; empty if nothing does."""
    if found.has_autoscaling:
        return f"Ray's own autoscaling sets its replicas; take autoscaling_config out, and {SCALABLE}"
    if not found.takes_scaling:
        return f"its application lets nobody else scale it; {SCALABLE}"
    status = next((each for each in (found.application_status, found.status) if each in PASSING), "")
    if status:
        return f"it is {status}, as Ray's dashboard explains; it is decided again once that has ended"
    return "it is scaled to none, perhaps for a reason; scale it to one by hand" if found.target == 0 else ""


def draw_ray_bounds(adoption: RayAdoption) -> ReplicaBounds:
    """Returns the bounds of the file; Ray places replicas, so none is kept here for a node that may be lost."""
    bounds = adoption.bounds
    return ReplicaBounds(bounds.least, "minReplicas", bounds.most, "maxReplicas")


def make_estate(present: Mapping[WorkloadName, RayDeployment]) -> Estate:
    """Returns deployments as loads are read of them: without nodes and pods, which Ray places."""
    return Estate((), tuple(_make_workload(name, each) for name, each in present.items()), ())


def _make_workload(name: WorkloadName, found: RayDeployment) -> ClusterWorkload:
    return ClusterWorkload(
        name=name, owners=(), is_scalable=True, replicas=found.target, running=found.ready, ready=found.ready,
        waiting_pods=0, pods_per_replica=1, slots_per_replica={}, gpus=NOTHING, autoscaler=None, budgets=(), spread=(),
        images=(), annotations={},
    )  # fmt: skip
