"""Moves a job's device memory to the host and back with NVIDIA's `cuda-checkpoint`; off unless an operator asks for it.

What the tool can: one process on one GPU, without MPS, NCCL or managed memory, driver 550 or later (570 for its
separate actions), x86-64. A job under MPS can therefore not be swapped, and is checkpointed and stopped instead.
A step that fails may leave the process in a state that it never leaves: `Failed.bad` says so, and the job must then be
ended and go on from what it has saved itself. So have it save before it is swapped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from enum import StrEnum

from agents.runtime import Running, Runtime

LOCK_SECONDS = 10.0  # for work under way to end: a job that never pauses is not swapped
MOVE_SECONDS = 120.0  # 80 GiB at less than a GiB/s
ASK_SECONDS = 10.0


class State(StrEnum):
    """What the tool says of a process."""

    RUNNING = "running"
    LOCKED = "locked"  # its CUDA calls wait
    CHECKPOINTED = "checkpointed"  # its memory is on the host, the device is free of it
    FAILED = "failed"
    UNKNOWN = "unknown"


class Failed(Exception):
    """A job was not swapped. `bad`: its process is not what it was, and must be ended."""

    def __init__(self, what: str, bad: bool) -> None:
        super().__init__(f"{what}; {'its process must be ended' if bad else 'it runs as before'}")
        self.bad = bad


class Swap:
    """The tool, and the runtime that knows which process a job is."""

    def __init__(
        self,
        runtime: Runtime,
        program: Sequence[str] = ("cuda-checkpoint",),
        lock_seconds: float = LOCK_SECONDS,
        move_seconds: float = MOVE_SECONDS,
        ask_seconds: float = ASK_SECONDS,
    ) -> None:
        self._runtime = runtime
        self._program = tuple(program)
        self._lock_seconds = lock_seconds
        self._move_seconds = move_seconds
        self._ask_seconds = ask_seconds

    def out(self, running: Running, under_mps: bool) -> None:
        """Free the device of the job's memory. Done already, or half, it is done to the end. Raises Failed."""
        pid = self._only_process(running)
        if under_mps:
            raise Failed(f"{running.copy} runs under MPS, which cuda-checkpoint cannot swap", bad=False)
        state = self._state(pid)
        if state is State.CHECKPOINTED:
            return
        if state is State.RUNNING:
            said = self._act(pid, "lock", self._lock_seconds, "--timeout", str(round(self._lock_seconds * 1000)))
            if said:
                self._let_go(pid, f"{running.copy} cannot be locked: {said}")
        elif state is not State.LOCKED:
            raise Failed(f"{running.copy} is {state} to cuda-checkpoint", bad=state is State.FAILED)
        said = self._act(pid, "checkpoint", self._move_seconds)
        if said:
            self._let_go(pid, f"{running.copy} cannot be moved to the host: {said}")

    def back(self, running: Running) -> None:
        """Give the job its memory and let it go on. There must be room. Raises Failed."""
        pid = self._only_process(running)
        state = self._state(pid)
        if state is State.CHECKPOINTED:
            said = self._act(pid, "restore", self._move_seconds)
            if said:
                raise Failed(f"{running.copy} cannot be moved back: {said}", bad=True)
            state = State.LOCKED
        if state is State.LOCKED:
            said = self._act(pid, "unlock", self._ask_seconds)
            if said:
                raise Failed(f"{running.copy} cannot be unlocked: {said}", bad=True)
        elif state is not State.RUNNING:
            raise Failed(f"{running.copy} is {state} to cuda-checkpoint", bad=True)

    def _only_process(self, running: Running) -> int:
        if not self._runtime.alive(running):
            raise Failed(f"{running.copy} does not run", bad=True)
        pids = self._runtime.pids(running)
        if pids != {running.pid}:
            raise Failed(f"{running.copy} has {len(pids)} processes, cuda-checkpoint swaps one", bad=False)
        return running.pid

    def _let_go(self, pid: int, what: str) -> None:
        """After a step that failed: back to running where that can be, and in any case the truth."""
        state = self._state(pid)
        if state is State.LOCKED and not self._act(pid, "unlock", self._ask_seconds):
            state = self._state(pid)
        raise Failed(what, bad=state is not State.RUNNING)

    def _state(self, pid: int) -> State:
        code, said = self._run(self._ask_seconds, "--get-state", "--pid", str(pid))
        return State(said) if code == 0 and said in set(State) else State.UNKNOWN

    def _act(self, pid: int, action: str, seconds: float, *more: str) -> str:
        """One step; empty when it succeeded, else why not."""
        code, said = self._run(seconds + self._ask_seconds, "--action", action, "--pid", str(pid), *more)
        return "" if code == 0 else said or f"exit code {code}"

    def _run(self, seconds: float, *arguments: str) -> tuple[int, str]:
        try:
            done = subprocess.run(
                [*self._program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return -1, f"no answer within {seconds:g} s"
        except OSError as error:
            return -1, f"{self._program[0]}: {error.strerror}"
        return done.returncode, done.stdout[:500].decode(errors="replace").strip()
