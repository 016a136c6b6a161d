"""Copies as jobs of Slurm: each is a batch job on this node, whose process is found and signalled as any process is.

Slurm gives the GPU's share out, keeps others from it, shows it to squeue, and may end it. A person that cancels it,
and a job that preempts it, make it save by SIGTERM as the agent would. The agent decides when it starts again, from its
last save.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from agents.runtime import Launch, LaunchError, Running, proc
from agents.runtime.process import ProcessCopies, name_user, resolve_program
from agents.runtime.slurm_commands import ACTIVE, WAITING, SlurmCommands, SlurmGpu, SlurmJob
from agents.runtime.slurm_start import PERCENTAGE, SlurmStart

CANCELLED = 143  # SIGTERM: the code of a program that saved and exited with 0 because somebody ended its job
_END_SECONDS = 5.0  # from the end of a process until Slurm knows it
_LOOK_SECONDS = 0.05
_ASK_SECONDS = 1.0
_STEP = "agents.runtime.slurm_start"


class SlurmRuntime(ProcessCopies):
    """Jobs of one folder's copies, on the GPUs that Slurm knows by these places."""

    def __init__(
        self, folder: Path, slurm: SlurmCommands, gpus: Mapping[str, SlurmGpu], users: Collection[int] = ()
    ) -> None:
        super().__init__(folder, cgroups=False, users=users)
        self._slurm = slurm
        self._gpus = gpus
        self._starts = self._folder / "starts"
        self._starts.mkdir(exist_ok=True, mode=0o700)
        self._waits: dict[str, str] = {}  # why copies do not run yet
        self._submitted: set[str] = set()  # copies that start
        self._asks_at: dict[str, float] = {}  # when Slurm is asked again about a copy that starts

    def start(self, launch: Launch) -> Running | None:
        """Submits the job, once; None until its process is there."""
        running = next((found for found in self.find() if found.copy == launch.copy), None)
        if running is not None:
            return running if self._has_become(running) else None
        if time.monotonic() < self._asks_at.get(launch.copy, 0.0):
            return None  # who asks a controller of a thousand nodes more often slows all of them down
        self._asks_at[launch.copy] = time.monotonic() + _ASK_SECONDS
        name = self._name(launch.copy)
        job = self._slurm.find_job(name)
        if job is None and launch.copy in self._submitted:
            raise LaunchError(f"{launch.copy}: Slurm does not know its job {name} any more")
        if job is None:
            self._submit(launch, name)
            self._submitted.add(launch.copy)
        elif job.state in WAITING:
            self._waits[launch.copy] = f"Slurm's job {job.number} waits: {job.reason}"
        elif job.state not in ACTIVE:
            tail = super().log_tail(launch.copy)
            raise LaunchError(f"{launch.copy}: Slurm's job {job.number} ended as {job.state}: {tail or job.reason}")
        else:
            self._waits.pop(launch.copy, None)
        return None

    def withdraw(self, copy: str, running: Running | None = None) -> None:
        """Cancels the job of a copy whose process does not run. Slurm starts no job a second time."""
        self._waits.pop(copy, None)
        self._asks_at.pop(copy, None)
        self._submitted.discard(copy)
        if running is None:
            self._slurm.cancel(self._name(copy))

    def exit_code(self, running: Running) -> int | None:
        """Waits until Slurm knows how the job has ended. One that somebody else ended has not ended by itself."""
        job = self._await_end(self._name(running.copy))
        if job is None or job.state in ACTIVE:
            return None
        return self._slurm.read_exit(job) or (0 if job.state == "COMPLETED" else CANCELLED)

    def log_tail(self, copy: str) -> str:
        return super().log_tail(copy) or self._waits.get(copy, "")

    def tidy(self, copies: Collection[str]) -> None:
        super().tidy(copies)
        kept = {self._name(copy) for copy in copies}
        for path in self._starts.iterdir():
            if path.stem not in kept:
                path.unlink(missing_ok=True)

    def _submit(self, launch: Launch, name: str) -> None:
        try:
            start = self._write_start(launch)
            path = self._start_file(launch.copy)
            path.touch(0o600)
            path.write_bytes(msgspec.json.encode(start))
            log = self._logs.path(launch.copy)
            log.touch(0o600)
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

    def _write_start(self, launch: Launch) -> SlurmStart:
        confined, argv = launch.filled.confined, launch.filled.argv
        environment = self._environment(launch)
        gpus = self._find_gpus(launch)
        percentage = count_parts(launch, gpus[0]) * 100 // gpus[0].count if gpus[0].gres == "mps" else None
        return SlurmStart(
            argv if confined else tuple(resolve_program(argv, environment["PATH"])),
            environment,
            launch.oom_score,
            name_user(confined) if confined else None,
            ",".join(str(gpu.index) for gpu in gpus),
            percentage if is_shared(launch) else None,
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

    def _has_become(self, running: Running) -> bool:
        """Returns whether the first step of the copy is over and its program runs."""
        words = proc.read(f"/proc/{running.pid}/cmdline")
        return bool(words) and _STEP.encode() not in words and not self._start_file(running.copy).exists()

    def _start_file(self, copy: str) -> Path:
        return self._starts / f"{self._name(copy)}.json"

    def _name(self, copy: str) -> str:
        """Returns the name of a copy's job: one that people know, and that no other agent gives."""
        mark = hashlib.sha256(f"{self._folder}\0{copy}".encode()).hexdigest()[:12]
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', copy)[:80]}-{mark}"

    def _await_end(self, name: str) -> SlurmJob | None:
        ends = time.monotonic() + _END_SECONDS
        while True:
            job = self._slurm.find_job(name)
            if job is None or job.state not in ACTIVE or time.monotonic() > ends:
                return job
            time.sleep(_LOOK_SECONDS)


def is_shared(launch: Launch) -> bool:
    """Returns whether the copy has a share of one GPU; others have theirs whole, without MPS."""
    return PERCENTAGE in launch.limits


def count_parts(launch: Launch, gpu: SlurmGpu) -> int:
    """Returns how many of Slurm's parts of the GPU are the planned share: rounded down, so that all shares fit."""
    share = float(launch.limits[PERCENTAGE]) * launch.filled.processes
    return max(1, int(share * gpu.count / 100 + 1e-9))


def _name_gres(name: str, gpu: SlurmGpu, count: int) -> str:
    return f"{name}:{gpu.type}:{count}" if gpu.type else f"{name}:{count}"
