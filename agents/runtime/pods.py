"""Copies as pods: each is a ReplicaSet of one in the agent's namespace, pinned to this node.

Kubernetes pulls the image, starts the program, and brings it back if its node restarts; the agent decides when. What
the agent knows of its pods it follows, so that copies that run need no answer of the API server. Whether a process
lives is read from /proc, as for containers: the agent's pod shares the host's PIDs, and a process is found by the ID
of its container, which its cgroup's name has.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from agents.host.clocks import boot_id
from agents.kubernetes.api import STRATEGIC, ApiAway, ApiRefused, KubernetesApi, Object
from agents.kubernetes.following import Follower
from agents.kubernetes.names import CONTAINER, GATE, NODE, PART, container_of, hash_copy, status_of
from agents.runtime import Launch, LaunchError, Running, proc
from agents.runtime.containers import Containers
from agents.runtime.logs import strip_controls, whole_lines
from agents.runtime.pod_status import copy_of, grace_of, is_leaving, is_over, read_exit, read_port, why_not_running
from agents.runtime.replica_set import PodSettings, write_replica_set
from agents.templates import Filled

_DELETED_SECONDS = 10.0  # until the controller has deleted the pod of a ReplicaSet that was scaled to 0
_STATUS_SECONDS = 5.0  # until the kubelet has said how a process ended that is gone
_FIRST_LIST_SECONDS = 10.0
_SEEN_SECONDS = 0.5  # after which processes of new containers are looked for again
_ORPHAN_SECONDS = 5.0  # after which those are that the first process of a container does not lead to
_TAIL_LINES = "50"
_TAIL_SECONDS = 1.0  # a keeper waits for it, which has other copies to look after
_GONE = 404
_EXISTS = 409


class GpuUnheld(Exception):
    """No copy may start on a GPU yet, and why."""


class PodRuntime:
    """The pods of copies on one node, and the ReplicaSets that hold them."""

    def __init__(
        self,
        api: KubernetesApi,
        settings: PodSettings,
        nodes: Follower | None = None,
        find_claims: Callable[[Collection[str]], Sequence[str]] = lambda _: (),
    ) -> None:
        """`find_claims` returns by which claims a copy gets its GPUs, or raises GpuUnheld."""
        self._api = api
        self._find_claims = find_claims
        self._nodes = nodes  # of which this is one
        self._settings = settings
        self._boot_id = boot_id()
        self._selected: dict[str, Any] = {"labelSelector": f"{PART}={settings.part},{NODE}={settings.node}"}
        self._pods = Follower(api, f"/api/v1/namespaces/{api.namespace}/pods", self._selected)
        self._sets = f"/apis/apps/v1/namespaces/{api.namespace}/replicasets"
        self._started: set[str] = set()  # copies that this agent started
        self._inherited: frozenset[str] | None = None  # copies that ran when it began: a person decides of unknown ones
        self._waits_for: dict[str, str] = {}  # copies that start once their GPU is held: why it is not
        self._withdrawn: set[str] = set()  # copies whose ReplicaSets want no replica any more
        self._going_on: dict[str, str] = {}  # of withdrawn copies: the container that nobody else ends, or nothing
        self._scaling = threading.Lock()  # so that no copy is scaled up again that was withdrawn meanwhile
        self._containers = Containers()
        self._processes: dict[str, Running] = {}  # by the container's ID
        self._pods.start(self._end_others)

    def start(self, launch: Launch) -> Running | None:
        if not (launch.filled.image or self._settings.image):
            reason = f"template {launch.filled.template} names no image, and the agent has no --image for such"
            raise LaunchError(f"{launch.copy}: {reason}")
        if launch.copy not in self._started:
            try:
                claims = self._find_claims(launch.gpu.split(",")) if launch.gpu else ()
            except GpuUnheld as error:
                self._waits_for[launch.copy] = str(error)
                return None
            self._waits_for.pop(launch.copy, None)
            self._started.add(launch.copy)  # before it is there, so that it is tidied away at no moment
            try:
                self._create(launch, claims)
            except LaunchError:
                self._started.discard(launch.copy)
                raise
        running = next((running for running in self.find() if running.copy == launch.copy), None)
        if running is None and self._has_exited(launch.copy):
            raise LaunchError(f"{launch.copy} exited by itself; its last output: {self.log_tail(launch.copy)[-300:]}")
        return running

    def find(self) -> tuple[Running, ...]:
        """Finds none where the API server has not answered yet: those of the journal live without it."""
        pods: Mapping[str, Object] = {}
        with suppress(ApiAway):
            self._pods.wait(lambda _: True, _FIRST_LIST_SECONDS)
            pods = self._pods.objects()
        found = self._find_oldest(pods.values())
        for known in tuple(self._processes.values()):
            if not self.alive(known):
                self._processes.pop(known.container, None)
        if self._inherited is None:
            self._inherited = frozenset(found)
        return tuple(found.values())

    def withdraw(self, copy: str, running: Running | None = None) -> None:
        """Raises LaunchError as long as anything else of it runs, or may still begin to: the kubelet is not asked."""
        self._take_away(copy, running)
        if not all(self._is_over(pod, running) for pod in self._pods_of(copy)):
            raise LaunchError(f"{copy}: what was started in its place has not ended yet")
        with suppress(LaunchError):  # `tidy` does it later
            self._delete(f"copy-{hash_copy(copy)}")  # nobody can raise its replicas any more

    def _take_away(self, copy: str, running: Running | None) -> None:
        self._scale_down(copy)
        self._going_on[copy] = running.container if running else ""
        if not self._pods.wait(lambda pods: copy not in _count_staying(pods.values()), _DELETED_SECONDS):
            raise LaunchError(f"{copy}: its pod is not deleted, though its ReplicaSet wants none")
        self._end_others()

    def find_called_away(self) -> dict[str, float]:
        try:
            pods = self._pods.objects()
        except ApiAway:
            return {}
        leaving = {(copy_of(pod), container_of(pod)): grace_of(pod) for pod in pods.values() if is_leaving(pod)}
        own = self._find_oldest(pods.values()) if leaving else {}
        return {
            copy: grace
            for (copy, container), grace in leaving.items()
            if copy not in own or own[copy].container == container
        }

    def announce(self, running: Running) -> None:
        condition = {
            "type": GATE,
            "status": "True",
            "reason": "Verified",
            "message": "its limits are in force, and it is warm",
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        with self._asking(running.copy):
            path = self._path_of(self._pod_of(running.copy, running.container))
            self._api.patch(f"{path}/status", {"status": {"conditions": [condition]}}, STRATEGIC)

    def alive(self, running: Running) -> bool:
        if running.boot_id != self._boot_id or not running.pid:
            return False
        process = proc.read_process(running.pid)
        return process is not None and process.start_ticks == running.start_ticks and not process.zombie

    def stopped(self, running: Running) -> bool:
        process = proc.read_process(running.pid) if self.alive(running) else None
        return process is not None and process.stopped

    def pids(self, running: Running) -> frozenset[int]:
        if not running.container:
            return frozenset()
        if not self.alive(running):
            return frozenset(self._containers.find_members(running.container))
        orphans = self._containers.find_members(running.container, _ORPHAN_SECONDS)
        return frozenset(proc.descendants(running.pid) | orphans)

    def end(self, running: Running, force: bool) -> None:
        """Ends the process itself, once nothing would start it again: the kubelet would wait for the pod's hook."""
        if not self.alive(running):
            return
        self._take_away(running.copy, running)
        proc.send(running.pid, running.start_ticks, signal.SIGKILL if force else signal.SIGTERM)

    def tell(self, running: Running, signal_name: str) -> None:
        if self.alive(running):
            proc.send(running.pid, running.start_ticks, signal.Signals[signal_name])

    def run_beside(self, running: Running, filled: Filled, seconds: float) -> bool:
        return False  # a pod is not entered

    def exit_code(self, running: Running) -> int | None:
        """Returns the code once the kubelet has said it, which it does a moment after the process is gone."""

        def is_said(pods: Mapping[str, Object]) -> bool:
            return read_exit(pods, running.container) is not None

        is_due = not self.alive(running) and not self._pods.away
        if not self._pods.wait(is_said, _STATUS_SECONDS if is_due else 0.0):
            return None
        try:
            return read_exit(self._pods.objects(), running.container)
        except ApiAway:
            return None

    def log_tail(self, copy: str) -> str:
        """Returns its last lines; of a pod that does not run, why it does not, and why there is none."""
        if copy in self._waits_for:
            return self._waits_for[copy]
        with suppress(ApiAway, ApiRefused):
            if not self._pods_of(copy):
                return self._why_no_pod(copy)
            pod = self._pod_of(copy)
            if status_of(pod).get("containerID"):
                said = strip_controls(self._read_log(pod, seconds=_TAIL_SECONDS, tailLines=_TAIL_LINES))
                return said or why_not_running(pod)
        with suppress(ApiAway):
            return "; ".join(filter(None, map(why_not_running, self._pods_of(copy))))
        return ""

    def read_log(self, copy: str, offset: int | None, most_bytes: int) -> tuple[bytes, int]:
        try:
            whole = self._read_log(self._pod_of(copy))  # the kubelet keeps ten mebibytes
        except (ApiAway, ApiRefused, LaunchError):
            return b"", offset or 0
        begins = max(0, len(whole) - most_bytes) if offset is None else offset if offset <= len(whole) else 0
        part = whole_lines(whole[begins : begins + most_bytes], most_bytes)
        return part, begins + len(part)

    def tidy(self, copies: Collection[str]) -> None:
        """Deletes ReplicaSets that have no pod any more, and ends those that no agent knows of."""
        here = {running.copy for running in self.find()}
        known = {*copies, *(here & (self._inherited or frozenset()))}
        with self._asking("the ReplicaSets of this node"):
            there = {copy_of(found): found for found in self._api.get(self._sets, **self._selected).get("items") or ()}
            for copy, found in there.items():
                wanted = (found.get("spec") or {}).get("replicas", 1)
                if wanted == 0 and not (found.get("status") or {}).get("replicas"):
                    if copy not in copies:
                        self._delete(found["metadata"]["name"])
                elif wanted and copy not in known and copy not in self._started:
                    self._scale_down(copy)
        self._waits_for = {copy: why for copy, why in self._waits_for.items() if copy in copies}
        self._started &= there.keys()  # also what is measured, which is in no journal
        self._withdrawn &= there.keys()

    def close(self) -> None:
        self._pods.close()

    def _create(self, launch: Launch, claims: Sequence[str]) -> None:
        with self._asking(launch.copy):
            node = self._nodes.objects().get(self._settings.node) if self._nodes else None
            try:
                self._api.create(self._sets, write_replica_set(launch, self._settings, node, claims))
            except ApiRefused as refused:
                if refused.status != _EXISTS:  # an agent that was killed has created it
                    raise

    def _scale_down(self, copy: str) -> None:
        self._started.discard(copy)  # tidied away at the latest, where nobody answers now
        self._inherited = (self._inherited or frozenset()) - {copy}
        with self._scaling, self._asking(copy):
            is_raised = copy in _count_staying(self._pods.objects().values())
            # Its creation may still be under way, if it was not answered: then it is asked for again.
            if (is_raised or copy not in self._withdrawn) and self._scale(copy, 0):
                self._withdrawn.add(copy)

    def _scale(self, copy: str, replicas: int) -> bool:
        """Returns whether the copy has a ReplicaSet."""
        with self._asking(copy):
            try:
                self._api.patch(f"{self._sets}/copy-{hash_copy(copy)}", {"spec": {"replicas": replicas}})
            except ApiRefused as refused:
                if refused.status != _GONE:
                    raise
                return False
        return True

    def _end_others(self) -> None:
        """Ends what was started in place of a copy that had ended, or was deleted: it would wait for its pod's hook.

        Each change of a pod is looked at, for a kubelet may have started it just before, and say so later.
        """
        pods = self._pods.objects().values()
        for copy in set(self._going_on) - set(map(copy_of, pods)):
            self._going_on.pop(copy, None)
        runs = [(container_of(pod), copy_of(pod)) for pod in pods if is_leaving(pod)]
        others = {found for found, copy in runs if found and self._going_on.get(copy, found) != found}
        others |= self._find_doubles(pods)
        for pid in (pid for other in others for pid in self._containers.find_members(other)):
            if process := proc.read_process(pid):
                proc.send(pid, process.start_ticks, signal.SIGKILL)
        self._take_second_pods_away(_count_staying(pods))

    def _take_second_pods_away(self, staying: Mapping[str, int]) -> None:
        """Scales down what somebody has scaled up; Kubernetes takes the pod that is not ready, or the younger one."""
        several = {copy for copy, count in staying.items() if count > 1}
        with self._scaling, suppress(LaunchError):  # at the next change of a pod
            for copy in several - self._withdrawn - self._going_on.keys():
                self._scale(copy, 1)

    def _find_doubles(self, pods: Collection[Object]) -> set[str]:
        """Returns the containers that run beside a copy's own: as clients of MPS they would have its share once more.

        A ReplicaSet makes a second pod where somebody scales it up, or deletes the first one, which goes on meanwhile.
        """
        several = Counter(copy_of(pod) for pod in pods if container_of(pod))
        doubled = [pod for pod in pods if several[copy_of(pod)] > 1 and container_of(pod)]
        own = self._find_oldest(doubled, 0.0)
        runs = {(copy_of(pod), container_of(pod)) for pod in doubled}
        return {found for copy, found in runs if copy in own and own[copy].container != found}

    def _find_oldest(self, pods: Collection[Object], seconds: float = _SEEN_SECONDS) -> dict[str, Running]:
        """Returns each copy's process; of two pods the other one is its ReplicaSet's doing."""
        found: dict[str, Running] = {}
        for pod in pods:
            container = container_of(pod)
            running = self._find_process(pod, container, seconds) if container else None
            if running is not None:
                first = found.get(running.copy, running)
                found[running.copy] = min(running, first, key=lambda known: known.start_ticks)
        return found

    def _is_over(self, pod: Object, running: Running | None) -> bool:
        """Returns whether a pod that is being deleted runs nothing, and will not; or but the copy's own process."""
        own = running is not None and str(status_of(pod).get("containerID", "")).endswith(running.container)
        if is_over(pod) or own:
            return True
        container = container_of(pod)
        return bool(container) and not self._containers.find_members(container)  # one without may be about to get one

    def _pods_of(self, copy: str) -> list[Object]:
        """Returns the pods of a copy, the oldest first."""
        own = [pod for pod in self._pods.objects().values() if copy_of(pod) == copy]
        return sorted(own, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))

    def _delete(self, name: str) -> None:
        with self._asking(name):
            try:
                self._api.delete(f"{self._sets}/{name}", {"propagationPolicy": "Background"})
            except ApiRefused as refused:
                if refused.status != _GONE:
                    raise

    def _has_exited(self, copy: str) -> bool:
        """Returns whether its program has ended before the agent saw it run: the kubelet would try for ever."""
        return any(status_of(pod).get("restartCount") for pod in self._pods_of(copy))

    def _find_process(self, pod: Object, container: str, seconds: float) -> Running | None:
        """Returns the first process of a container; None where it is gone or not there yet."""
        known = self._processes.get(container)
        if known is None:
            first = self._containers.find_first(container, seconds)
            if first is None:
                return None
            host = str((pod.get("status") or {}).get("podIP", ""))
            identity = (first.pid, first.start_ticks, self._boot_id, container)
            known = Running(copy_of(pod), *identity, host, read_port(pod))
            self._processes[container] = known
        return known if self.alive(known) else None

    def _pod_of(self, copy: str, container: str = "") -> Object:
        """Returns the pod of a copy; of several the one with this container, else the newest."""
        pods = self._pods_of(copy)
        if container:
            pods = [pod for pod in pods if status_of(pod).get("containerID", "").endswith(container)]
        if not pods:
            raise LaunchError(f"{copy} has no such pod")
        return pods[-1]

    def _why_no_pod(self, copy: str) -> str:
        """Returns why the controller makes no pod, such as by a quota; empty where nobody wants one."""
        asked = {"fieldSelector": f"metadata.name=copy-{hash_copy(copy)}"}
        found = self._api.get(self._sets, seconds=_TAIL_SECONDS, **asked).get("items") or ()
        known = [one for each in found for one in (each.get("status") or {}).get("conditions") or ()]
        said = [str(one.get("message", "")) for one in known if one.get("type") == "ReplicaFailure"]
        return strip_controls("; ".join(said).encode())

    def _path_of(self, pod: Object) -> str:
        return f"/api/v1/namespaces/{self._api.namespace}/pods/{pod['metadata']['name']}"

    def _read_log(self, pod: Object, **query: Any) -> bytes:
        if status_of(pod).get("restartCount"):
            query["previous"] = "true"  # how it ended, and not how it began again
        return self._api.get_text(f"{self._path_of(pod)}/log", container=CONTAINER, **query)

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ApiAway, ApiRefused) as error:
            raise LaunchError(f"{what}: {error}") from error


def _count_staying(pods: Collection[Object]) -> Counter[str]:
    """Counts by copy the pods that may start something yet."""
    return Counter(copy_of(pod) for pod in pods if not is_leaving(pod) and not is_over(pod))
