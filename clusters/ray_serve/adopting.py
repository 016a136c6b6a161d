"""Judges deployments of Ray Serve as they are now: whether they may be scaled, and what to do where they may not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusters.estate import NOTHING, ClusterWorkload, Estate, WorkloadName
from clusters.ray_serve.dashboard import RayDeployment, RayReading
from clusters.ray_serve.services import RayAdoption, RayServices
from clusters.savings.floors import ReplicaBounds
from clusters.scaling.adoption import AdoptedWorkload

QUIET_SECONDS = 600.0  # after another set a number
GONE = "Ray Serve has no such deployment; deploy it, or take its entry out of the file"
SCALABLE = "set external_scaler_enabled: true in its Serve config, and deploy it again"
PASSING = ("DELETING", "NOT_STARTED", "DEPLOY_FAILED", "UPDATING")  # statuses in which a number says nothing


@dataclass(frozen=True, slots=True)
class RaySighting:
    """The number of a deployment, since when it was seen, and whether another set it. Ray keeps neither."""

    deployed_at: int
    target: int
    since: float  # seconds of a clock that only goes forward
    wanted: frozenset[int]  # what we have wanted meanwhile, so that a change to it is ours
    is_foreign: bool = False


def note_sightings(
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
        is_redeployed = earlier is None or earlier.deployed_at != each.deployed_at
        is_foreign = not is_redeployed and earlier is not None and each.target not in earlier.wanted
        found[name] = RaySighting(each.deployed_at, each.target, now, frozenset(), is_foreign)
    return found


def adopt(adoption: RayAdoption, found: RayDeployment, dashboard: str, hold: str) -> AdoptedWorkload:
    """Returns a deployment as a scaler decides on it. Deployed again, it has another specification."""
    return AdoptedWorkload(
        adoption.name, adoption.service, adoption.mode, found.target, adoption.bounds, dashboard, found.deployed_at,
        adoption.promise, hold,
    )  # fmt: skip


def find_ray_hold(found: RayDeployment, sighting: RaySighting | None, now: float) -> str:
    """Returns the sentence on what keeps a deployment from being scaled; empty if nothing does."""
    if found.has_autoscaling:
        return f"Ray's own autoscaling sets its replicas; take autoscaling_config out, and {SCALABLE}"
    if not found.takes_scaling:
        return f"its application lets nobody else scale it; {SCALABLE}"
    status = next((each for each in (found.application_status, found.status) if each in PASSING), "")
    if status:
        return f"it is {status}{': ' if found.message else ''}{found.message}; it is decided again once that has ended"
    if found.target == 0:
        return "it is scaled to none, perhaps for a reason; scale it to one by hand"
    if sighting and sighting.is_foreign and now < sighting.since + QUIET_SECONDS:
        minutes = (now - sighting.since) / 60
        return (
            f"another set it to {found.target} {minutes:.0f} minutes ago; nothing is written for ten minutes after that"
        )
    return ""


def draw_ray_bounds(adoption: RayAdoption) -> ReplicaBounds:
    """Returns the bounds of the file; Ray places replicas, so none is kept here for a node that may be lost."""
    bounds = adoption.bounds
    return ReplicaBounds(bounds.least, "minReplicas", bounds.most, "maxReplicas")


def make_estate(services: RayServices, reading: RayReading) -> Estate:
    """Returns the adopted deployments as loads are read of them: without nodes and pods, which Ray places."""
    found = [
        (each.name, reading.deployments[each.name]) for each in services.adopted if each.name in reading.deployments
    ]
    return Estate((), tuple(_make_workload(name, each) for name, each in found), ())


def _make_workload(name: WorkloadName, found: RayDeployment) -> ClusterWorkload:
    return ClusterWorkload(
        name=name, owners=(), is_scalable=True, replicas=found.target, running=found.ready, ready=found.ready,
        waiting_pods=0, pods_per_replica=1, slots_per_replica={}, gpus=NOTHING, autoscaler=None, budgets=(), spread=(),
        images=(), annotations={},
    )  # fmt: skip
