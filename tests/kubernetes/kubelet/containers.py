"""One container of a pod: its runs, one after the other, with the waiting between them, its probes and its end."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.kubelet.api import Resource, find
from tests.kubernetes.kubelet.given import CREATING, Blocked
from tests.kubernetes.kubelet.probes import Probe
from tests.kubernetes.kubelet.runs import START_ERROR, Command, Run, make_run

AGAIN_SECONDS = 0.5  # until it is tried again to start what was blocked


@dataclass(frozen=True, slots=True)
class BackOff:
    """The seconds before the second restart; they double with each. The first restart comes at once."""

    first_seconds: float = 0.25
    most_seconds: float = 4.0

    def seconds(self, restarts: int) -> float:
        return min(self.first_seconds * 2 ** (restarts - 1), self.most_seconds) if restarts else 0.0


class Container:
    """It remembers nothing that its folder does not say, but what its probes found."""

    def __init__(self, spec: Resource, folder: Path, groups: Path, uid: str, address: str, back_off: BackOff) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.folder = folder / self.name
        self._groups, self._uid, self._address, self._back_off = groups, uid, address, back_off
        found = self.folder.iterdir() if self.folder.exists() else ()
        self.runs = [Run(path, groups, uid) for path in sorted(found, key=lambda path: int(path.name))]
        self.waiting = (CREATING, "")
        self._again = 0.0
        self._probes = self._make_probes()
        self._end: _End | None = None

    @property
    def run(self) -> Run | None:
        """Returns the last one."""
        return self.runs[-1] if self.runs else None

    @property
    def exit_code(self) -> int | None:
        """Returns that of its last run; None while it runs, or before it did."""
        return self.run.read_exit() if self.run else None

    @property
    def running(self) -> bool:
        return self.run is not None and self.exit_code is None

    @property
    def started(self) -> bool:
        return self.running and ("startupProbe" not in self._probes or self._probes["startupProbe"].holds)

    @property
    def ready(self) -> bool:
        return self.started and ("readinessProbe" not in self._probes or self._probes["readinessProbe"].holds)

    def is_over(self, policy: str) -> bool:
        """Says that it ran and is not started again."""
        code = self.exit_code
        return code is not None and (policy == "Never" or (policy == "OnFailure" and code == 0))

    def keep(self, policy: str, make_command: Callable[[Resource], Command]) -> None:
        """Starts it where it should run and does not, and asks its probes."""
        now = time.time()
        if self.running:
            self._ask(now)
        elif not self.is_over(policy) and now >= self._again and not self._is_held_back(now):
            try:
                command = make_command(self.spec)
            except Blocked as blocked:
                self.waiting, self._again = (blocked.reason, blocked.message), now + AGAIN_SECONDS
                return
            self.runs.append(make_run(self.folder / str(len(self.runs)), self._groups, self._uid))
            self.runs[-1].start(command)
            self._probes = self._make_probes()

    def end(self, seconds: float) -> bool:
        """Takes the next step to its end, which has so many seconds since the first; says that it has ended."""
        if not self.running:
            return True
        assert self.run
        if self._end is None:
            self._end = _End(self.run, find(self.spec, "lifecycle", "preStop", otherwise={}))
        self._end.go_on(seconds)
        return not self.running

    def _is_held_back(self, now: float) -> bool:
        if self.run is None:
            return False
        wait = self._back_off.seconds(len(self.runs) - 1)
        said = f"back-off {wait:g}s restarting failed container={self.name} pod={self._uid}"
        self.waiting = ("CrashLoopBackOff", said)
        return now < self.run.finished + wait

    def _make_probes(self) -> dict[str, Probe]:
        if self.run is None:
            return {}
        kinds = {"startupProbe": False, "readinessProbe": False, "livenessProbe": True}
        return {
            kind: Probe(self.spec[kind], self.spec, self.run, self._address, holds)
            for kind, holds in kinds.items()
            if kind in self.spec
        }

    def _ask(self, now: float) -> None:
        assert self.run
        for kind, probe in self._probes.items():
            if kind == "startupProbe" and probe.holds:
                continue
            if kind != "startupProbe" and not self.started:
                continue
            probe.ask(now)
            if probe.failed and kind != "readinessProbe":
                self.run.kill()

    def read_status(self, policy: str) -> Resource:
        """Returns the pod's entry of it."""
        run = self.run
        last: Resource = {}
        state: Resource
        if run is None:
            state = {"waiting": _waiting(*self.waiting)}
        elif self.running:
            state = {"running": {"startedAt": stamp(run.started)}}
            last = _terminated(self.runs[-2]) if len(self.runs) > 1 else {}
        elif self.is_over(policy) or self._end:
            state = _terminated(run)
        else:
            state, last = {"waiting": _waiting(*self.waiting)}, _terminated(run)
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": self.spec["image"] if run else "",
            **({"containerID": f"containerd://{run.id}"} if run else {}),
            "restartCount": max(0, len(self.runs) - 1),
            "ready": self.ready,
            "started": self.started,
            "state": state,
            "lastState": last,
        }


class _End:
    """From the first request to end a run until it has ended: its hook, SIGTERM, and SIGKILL once its time is over."""

    def __init__(self, run: Run, hook: Resource) -> None:
        self._run = run
        self._began = time.monotonic()
        self._sleep = find(hook, "sleep", "seconds", otherwise=0)
        self._command: subprocess.Popen[bytes] | None = None
        if "exec" in hook:
            self._command = run.execute(hook["exec"]["command"])
        self._asked = False

    def go_on(self, seconds: float) -> None:
        passed = time.monotonic() - self._began
        hooked = passed < self._sleep or (self._command is not None and self._command.poll() is None)
        if passed >= seconds:
            self._run.kill()
            if self._command:
                self._command.kill()
                self._command.wait()
        elif not hooked and not self._asked:
            self._run.signal(signal.SIGTERM)
            self._asked = True


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _waiting(reason: str, message: str) -> Resource:
    return {"reason": reason, **({"message": message} if message else {})}


def _terminated(run: Run) -> Resource:
    code = run.read_exit()
    error = run.start_error if code == START_ERROR else ""
    said = {"reason": "StartError", "message": error} if error else {"reason": "Error" if code else "Completed"}
    times = {"startedAt": stamp(run.started), "finishedAt": stamp(run.finished)}
    return {"terminated": {"exitCode": code, "containerID": f"containerd://{run.id}", **times, **said}}
