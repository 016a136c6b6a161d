"""Copies as jobs of Slurm: each is a batch job on this node, whose process is found and signalled as any process is.

Slurm allocates the GPU's share, keeps other jobs off it, lists it in squeue, and may end it. When a user cancels the
job or another job preempts it, SIGTERM makes the copy save, just as when the agent ends it. The agent decides when
to start it again, from its last save.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from agents.runtime import ExitUndecided, Launch, LaunchError, Running, proc
from agents.runtime.process import ProcessCopies, name_user, resolve_program
from agents.runtime.slurm_commands import ACTIVE, WAITING, SlurmAway, SlurmCommands, SlurmGpu, SlurmJob
from agents.runtime.slurm_start import REFUSED, SlurmStart
from agents.seams.mps_variables import SM_PERCENT_VARIABLE

CANCELLED = 143  # SIGTERM: the code of a program that saved and exited with 0 because somebody ended its job
NOT_STARTED = (REFUSED, 127)  # codes of the first step and of the launcher, where the program did not start
_FORGOTTEN = -1  # in place of a code
_SOON_SECONDS = 0.3
_ASK_SECONDS = 1.0  # who asks a controller of a thousand nodes more often slows all of them down
_YOUNG_SECONDS = 60.0
_STEP = "agents.runtime.slurm_start"


class SlurmRuntime(ProcessCopies):
    """Jobs of one folder's copies, on the GPUs that Slurm knows by these places."""

    def __init__(
        self, folder: Path, slurm: SlurmCommands, gpus: Mapping[str, SlurmGpu], users: Collection[int] = ()
    ) -> None:
        super().__init__(folder, cgroups=False, users=users)
        self._slurm = slurm
        self._gpus = gpus
        self._nodes = sorted({gpu.node for gpu in gpus.values()})
        self._starts = self._folder / "starts"
        self._starts.mkdir(exist_ok=True, mode=0o700)
        self._waits: dict[str, str] = {}  # why copies do not run yet
        self._submitted: set[str] = set()  # copies that start
        self._awaited: set[str] = set()  # copies whose end Slurm is asked about
        self._closed = threading.Event()
        self._asks_at: dict[str, float] = {}  # when Slurm is asked again about a copy that starts

    def start(self, launch: Launch) -> Running | None:
        """Submits the job, once; None until its process is there."""
        if time.monotonic() < self._asks_at.get(launch.copy, 0.0):
            return None
        running = next((found for found in self.find() if found.copy == launch.copy), None)
        if running is not None:
            self._waits.pop(launch.copy, None)
            return running
        pause = self._advance(launch)
        if pause is None:
            return Running(launch.copy, 0, 0, "")  # a process that is gone: `exit_code` says how it ended
        self._asks_at[launch.copy] = time.monotonic() + pause
        return None

    def _advance(self, launch: Launch) -> float | None:
        """Submits the job, or looks at it; returns after how many seconds to look again, None once the copy has run."""
        name = self._name_job(launch.copy)
        try:
            job = self._slurm.find_job(name)
            if job is None and launch.copy in self._submitted:
                raise LaunchError(f"{launch.copy}: Slurm does not know its job {name} any more")
            if job is None:
                self._submit(launch, name)
                self._submitted.add(launch.copy)
                return _SOON_SECONDS
            if self._has_run(job):
                return None  # before it was seen
        except SlurmAway as error:  # it may have taken the job all the same: a second one finds nothing to start
            self._waits[launch.copy] = str(error)
            return _ASK_SECONDS
        if job.state in WAITING:
            self._waits[launch.copy] = f"Slurm's job {job.number} waits: {job.reason}"
            return _ASK_SECONDS
        if job.state not in ACTIVE:
            tail = super().log_tail(launch.copy)
            raise LaunchError(f"{launch.copy}: Slurm's job {job.number} ended as {job.state}: {tail or job.reason}")
        self._waits.pop(launch.copy, None)
        return _SOON_SECONDS

    def _has_run(self, job: SlurmJob) -> bool:
        """Returns whether the job's program has ended by itself; False where Slurm does not know any more."""
        if job.state != "FAILED":
            return job.state == "COMPLETED"
        code = self._slurm.read_exit(job)
        return code is not None and code not in NOT_STARTED

    def find(self) -> tuple[Running, ...]:
        """Returns the copies whose programs run; the first step of a job is none yet."""
        return tuple(running for running in super().find() if self._runs_program(running))

    def withdraw(self, copy: str, running: Running | None = None) -> None:
        """Cancels the job of a copy whose process does not run. Slurm starts no job a second time.

        Raises LaunchError while a process that has run nevertheless still ends.
        """
        self._waits.pop(copy, None)
        self._asks_at.pop(copy, None)
        if running is None:
            self._start_file(copy).unlink(missing_ok=True)  # a job that comes to be later has nothing to start
            self._slurm.cancel(self._name_job(copy))
            if self._remaining(Running(copy, 0, 0, "")):
                raise LaunchError(f"{copy}: its cancelled job still ends")
        self._submitted.discard(copy)

    def exit_code(self, running: Running) -> int | None:
        """Returns how the job has ended, once Slurm knows. One that somebody else ended has not ended by itself."""
        copy = running.copy
        if copy not in self._codes:
            if copy not in self._awaited:
                self._awaited.add(copy)
                threading.Thread(target=self._await_end, args=(copy,), daemon=True).start()
            raise ExitUndecided(f"Slurm does not say yet how {copy} has ended")
        return None if self._codes[copy] == _FORGOTTEN else self._codes[copy]

    def close(self) -> None:
        self._closed.set()

    def log_tail(self, copy: str) -> str:
        return super().log_tail(copy) or self._waits.get(copy, "")

    def tidy(self, copies: Collection[str]) -> None:
        super().tidy(copies)
        self._waits = {copy: reason for copy, reason in self._waits.items() if copy in copies}
        kept = {self._name_job(copy) for copy in copies}
        for path in self._starts.iterdir():
            with suppress(FileNotFoundError):  # its job reads it, and deletes it
                if path.stem not in kept and time.time() - path.stat().st_mtime > _YOUNG_SECONDS:
                    path.unlink()

    def _submit(self, launch: Launch, name: str) -> None:
        try:
            start = self._make_start(launch)
            path = self._start_file(launch.copy)
            path.touch(0o600)
            path.write_bytes(msgspec.json.encode(start))
            log = self._logs.path(launch.copy)
            os.close(self._logs.open(launch.copy))
        except (OSError, ValueError) as error:
            raise LaunchError(f"{launch.copy}: {error}") from error
        words = [sys.executable, "-I", "-m", _STEP, str(path)]
        self._slurm.submit(
            # Its own step has the files that --output names open as long as the copy, and would pass for it.
            f"#!/bin/sh\nexec >>{shlex.quote(str(log))} 2>&1\nexec {shlex.join(words)}\n",
            f"--job-name={name}",
            f"--comment=gpuwright {launch.copy}",
            f"--nodelist={self._find_gpus(launch)[0].node}",
            "--nodes=1",
            "--ntasks=1",
            *self._list_gres(launch),
            "--output=/dev/null",
            "--chdir=/",
        )

    def _make_start(self, launch: Launch) -> SlurmStart:
        confined, argv = launch.filled.confined, launch.filled.argv
        environment = self._environment(launch)
        gpus = self._find_gpus(launch)
        divided = is_shared(launch) and gpus[0].gres == "mps"
        return SlurmStart(
            argv if confined else tuple(resolve_program(argv, environment["PATH"])),
            environment,
            launch.oom_score,
            name_user(confined) if confined else None,
            ",".join(str(gpu.index) for gpu in gpus),
            count_parts(launch, gpus[0]) * 100 // gpus[0].count if divided else None,
        )

    def _list_gres(self, launch: Launch) -> list[str]:
        """Returns the option that asks for the planned share of the planned GPU, or for whole GPUs."""
        gpus = self._find_gpus(launch)
        if is_shared(launch):
            return [f"--gres={_name_gres(gpus[0].gres, gpus[0], count_parts(launch, gpus[0]))}"]
        return [f"--gres={','.join(_name_gres('gpu', gpu, 1) for gpu in gpus)}"]

    def _find_gpus(self, launch: Launch) -> list[SlurmGpu]:
        uuids = launch.gpu.split(",")
        unknown = [uuid for uuid in uuids if uuid not in self._gpus]
        if unknown:
            raise LaunchError(f"{launch.copy}: Slurm has no GPU for {', '.join(unknown)}; see --slurm-nodes")
        found = [self._gpus[uuid] for uuid in uuids]
        if len({gpu.node for gpu in found}) > 1:
            raise LaunchError(f"{launch.copy}: its GPUs are of several nodes of Slurm's, and it is one process")
        return found

    def _runs_program(self, running: Running) -> bool:
        """Returns whether the first step of the copy is over."""
        step = _STEP.encode() in proc.read(f"/proc/{running.pid}/cmdline")
        return not step and not self._start_file(running.copy).exists()

    def _start_file(self, copy: str) -> Path:
        return self._starts / f"{self._name_job(copy)}.json"

    def _name_job(self, copy: str) -> str:
        """Returns the name of a copy's job: one that people know, and that no other agent gives."""
        mark = hashlib.sha256("\0".join((*self._nodes, str(self._folder), copy)).encode()).hexdigest()[:12]
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', copy)[:80]}-{mark}"

    def _await_end(self, copy: str) -> None:
        """Asks again and again how a job has ended, beside the agent's work: an epilog may take minutes."""
        pause = _SOON_SECONDS
        while not self._closed.wait(pause):
            pause = _ASK_SECONDS
            with suppress(LaunchError):
                code = self._read_end(self._name_job(copy))
                if code is not None:
                    self._codes[copy] = code
                    break
        self._awaited.discard(copy)

    def _read_end(self, name: str) -> int | None:
        """Returns the exit code of a job; None while Slurm may yet give it another one."""
        job = self._slurm.find_job(name)
        code = self._slurm.read_exit(job) if job is not None else None
        if job is None or code is None:
            return _FORGOTTEN
        if job.state in ACTIVE:
            return code if job.state == "COMPLETING" and code else None
        return code or (0 if job.state == "COMPLETED" else CANCELLED)


def is_shared(launch: Launch) -> bool:
    """Returns whether the copy has a share of one GPU; others have theirs whole, without MPS."""
    return SM_PERCENT_VARIABLE in launch.limits


def count_parts(launch: Launch, gpu: SlurmGpu) -> int:
    """Returns how many of Slurm's parts of the GPU are the planned share: rounded down, so that all shares fit."""
    share = float(launch.limits[SM_PERCENT_VARIABLE]) * launch.filled.processes
    return max(1, int(share * gpu.count / 100 + 1e-9))


def _name_gres(name: str, gpu: SlurmGpu, count: int) -> str:
    return f"{name}:{gpu.type}:{count}" if gpu.type else f"{name}:{count}"
