"""Writes replicas of Ray Serve, and says what became of it.

Ray keeps no version of a number, so it cannot refuse an old write as Kubernetes does. Instead a deployment is read
right before the write and after it, and a write without an answer is waited for: until its number is there, or for as
long as Ray may still be carrying it out. One that comes later still is seen at the next look, as another's change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from clusters.ray_serve.adopting import find_absence, find_refusal
from clusters.ray_serve.dashboard import RayDashboard, RayDeployment, RayFailed
from clusters.ray_serve.services import RayServices
from clusters.scaling.adoption import WantedReplicas
from clusters.scaling.outcomes import AGAIN, MayWrite, OpenWrite, WriteOutcome

LONGEST = timedelta(seconds=180)  # that Ray takes for a write; an overloaded controller took two minutes


@dataclass(frozen=True, slots=True)
class RayEngine:
    """A Ray cluster as what takes replicas."""

    dashboard: RayDashboard
    services: RayServices
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def write(self, wanted: WantedReplicas, may_write: MayWrite) -> WriteOutcome:
        adopted = wanted.adopted
        try:
            found = self.dashboard.read().deployments.get(adopted.name)
        except RayFailed as failed:
            return WriteOutcome("not written", f"Ray could not be read: {failed}", is_refused=True)
        hold = find_absence(found) or self._find_hold(found, wanted)
        if hold:
            return WriteOutcome("not written", hold)
        version = self.now().isoformat()
        if not may_write(version):
            return WriteOutcome("untried", "another scaler leads, or another plan has come", version)
        tried = OpenWrite(adopted.name, adopted.generation, version, wanted.replicas)
        try:
            reply = self.dashboard.scale(adopted.name, wanted.replicas)
        except RayFailed as failed:
            if failed.is_sent:
                return self._settle(tried, str(failed))
            return WriteOutcome("not written", f"Ray was not asked: {failed}", version, is_refused=True)
        if 400 <= reply.status < 500:
            return WriteOutcome("not written", f"Ray refused it: {reply.reason}", version, is_refused=True)
        cause = "Ray took it" if reply.status < 300 else f"Ray answered {reply.reason}"
        return self._settle(tried, cause)

    def settle(self, tried: OpenWrite) -> WriteOutcome:
        return self._settle(tried, "its answer was lost")

    def _settle(self, tried: OpenWrite, cause: str) -> WriteOutcome:
        """Says what became of a write by the number that is there now."""
        version = tried.version
        try:
            found = self.dashboard.read().deployments.get(tried.workload)
        except RayFailed as failed:
            return WriteOutcome("unknown", f"{cause}, and it cannot be read back: {failed}", version, is_open=True)
        if found is None:
            return WriteOutcome("unknown", f"{cause}, and the deployment is gone", version)
        if found.deployed_at != tried.generation:
            return WriteOutcome("unknown", f"it was deployed again meanwhile; {AGAIN}", version)
        if found.target == tried.replicas:
            return WriteOutcome("written", version=version)
        if self.now() < datetime.fromisoformat(version) + LONGEST:
            return WriteOutcome("unknown", f"{cause}, and it may yet be done", version, is_open=True)
        return WriteOutcome("not written", f"{cause}, and it was not done", version, is_refused=True)

    def _find_hold(self, found: RayDeployment | None, wanted: WantedReplicas) -> str:
        """Returns why nothing may be written to the deployment as it is now."""
        adopted = wanted.adopted
        assert found is not None, f"{adopted.name} is gone"
        entry = next((each for each in self.services.adopted if each.name == adopted.name), None)
        if (
            entry is None
            or (entry.service, entry.mode, entry.bounds) != (adopted.service, adopted.mode, adopted.bounds)
            or adopted.uid != self.services.dashboard
        ):
            return f"its entry in the file has changed; {AGAIN}"
        if adopted.hold or entry.mode == "advisory":
            return adopted.hold or "its mode is advisory"
        if (found.deployed_at, found.target) != (adopted.generation, adopted.replicas):
            return f"it has changed since it was decided; {AGAIN}"
        if adopted.bound(wanted.replicas) != wanted:
            return f"{adopted.replicas} to {wanted.replicas} replicas is beyond its bounds or one step"
        return find_refusal(found)
