"""A runtime whose processes are records in a simulated machine, for fleets in virtual time; and how to talk to them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from agents.runtime import Launch, LaunchError, Running
from agents.seams.traffic import Served
from agents.talk.copy_client import CopyPlace, CopyReply
from agents.templates import Filled, Probe
from tests.support.simulated_processes import Behaviour, PopulatedMachine, Process

SILENCE = CopyReply(False, 0, why="no process answers")


class SimulatedRuntime:
    """A CopyRuntime over a machine. `behave` scripts the processes to start; the machine outlives the runtime."""

    def __init__(
        self,
        machine: PopulatedMachine,
        clock: Callable[[], float],
        behave: Callable[[Launch], Behaviour],
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._behave = behave

    def start(self, launch: Launch) -> Running:
        behaviour = self._behave(launch)
        if not behaviour.starts:
            raise LaunchError(f"{launch.copy}: {launch.filled.argv[0] if launch.filled.argv else 'it'} cannot be run")
        machine = self._machine
        try:
            machine.at(launch.gpu, self._clock())
        except KeyError:
            raise LaunchError(f"{launch.copy}: unknown GPU {launch.gpu}") from None
        process = Process(launch, behaviour, next(machine.pids), machine.now)
        machine.processes[process.pid] = process
        return process.running

    def find(self) -> tuple[Running, ...]:
        self._machine.advance(self._clock())
        return tuple(process.running for process in self._machine.processes.values() if process.exited_at is None)

    def withdraw(self, copy: str, running: Running | None = None) -> None:
        """Nothing starts a copy but the agent."""

    def find_called_away(self) -> dict[str, float]:
        return {}  # nobody ends them but the agent

    def announce(self, running: Running) -> None:
        """Nobody waits for it but the agent."""

    def alive(self, running: Running) -> bool:
        return self._process(running) is not None

    def stopped(self, running: Running) -> bool:
        process = self._process(running)
        return process is not None and process.swapped_gib is not None

    def pids(self, running: Running) -> frozenset[int]:
        return frozenset((running.pid,)) if self.alive(running) else frozenset()

    def end(self, running: Running, force: bool) -> None:
        process = self._process(running)
        if process is None or (force and process.behaviour.ignores_kill):
            return
        if not force and (process.behaviour.ignores_term or process.swapped_gib is not None):
            return
        self._exit_in(process, 0.0 if force else process.behaviour.term_seconds)

    def tell(self, running: Running, signal_name: str) -> None:
        process = self._process(running)
        if process is None:
            return
        if signal_name in ("SIGTSTP", "SIGCONT"):
            process.swap(self._machine.slots[process.launch.gpu].gpu, signal_name == "SIGTSTP")
        saves = process.launch.filled.checkpoint_signal.removeprefix("SIG")
        if signal_name.removeprefix("SIG") == saves and not process.behaviour.ignores_drain:
            self._exit_in(process, process.behaviour.drain_seconds)

    def run_beside(self, running: Running, filled: Filled, seconds: float) -> bool:
        return self.alive(running)

    def exit_code(self, running: Running) -> int | None:
        return None  # a simulated process ends without a code

    def log_tail(self, copy: str) -> str:
        self._machine.advance(self._clock())
        of_copy = [process for process in self._machine.processes.values() if process.launch.copy == copy]
        return of_copy[-1].log if of_copy else ""

    def read_log(self, copy: str, offset: int | None, most_bytes: int) -> tuple[bytes, int]:
        text = self.log_tail(copy).encode()
        return text[offset or 0 :][:most_bytes], len(text)

    def tidy(self, copies: Collection[str]) -> None:
        gone = [process for process in self._machine.processes.values() if process.exited_at is not None]
        for process in gone:
            if process.launch.copy not in copies:
                del self._machine.processes[process.pid]

    def close(self) -> None:
        """It holds nothing open."""

    def process(self, copy: str) -> Process | None:
        """Returns the newest process of a copy, for the traffic simulation."""
        of_copy = [process for process in self._machine.processes.values() if process.launch.copy == copy]
        return of_copy[-1] if of_copy else None

    def _process(self, running: Running) -> Process | None:
        """Returns exactly this process, while it runs."""
        process = self._machine.processes.get(running.pid)
        if process is None or process.running != running:
            return None
        self._machine.at(process.launch.gpu, self._clock())
        return process if process.exited_at is None else None

    def _exit_in(self, process: Process, seconds: float) -> None:
        self._machine.at(process.launch.gpu, self._clock())
        process.exit_by(self._machine.now + seconds)


class SimulatedTalk:
    """A Talk to the processes of a machine, by their ports."""

    def __init__(self, machine: PopulatedMachine, clock: Callable[[], float]) -> None:
        self._machine = machine
        self._clock = clock

    def ask(self, copy: CopyPlace, probe: Probe, **values: float) -> CopyReply:
        process = self._find_process(probe.port or copy.port)
        if process is None:
            return SILENCE
        filled, behaviour, now = process.launch.filled, process.behaviour, self._machine.now
        if probe == filled.drain:
            if not behaviour.ignores_drain:
                process.exit_by(now + behaviour.drain_seconds)
            return CopyReply(True, 202)
        if probe == filled.warm_up:
            warm = behaviour.warms_up and now >= process.started_at + behaviour.warm_seconds
            return CopyReply(True, 200) if warm else CopyReply(False, 503)
        if probe == filled.set_batch:
            process.batch = int(values.get("batch", 0)) or process.batch
            process.batch_timeout_ms = values.get("batch_timeout_ms", process.batch_timeout_ms)
            return CopyReply(True, 200)
        if probe in (filled.health, filled.metrics):
            return CopyReply(True, 200)
        return CopyReply(False, 404)

    def served(self, copy: CopyPlace, filled: Filled) -> Served | None:
        process = self._find_process((filled.metrics.port if filled.metrics else 0) or copy.port)
        if process is None or filled.metrics is None:
            return None
        context, age = process.context, self._machine.now - process.answers_at
        return Served(
            counters=process.counters,
            busy_seconds=process.behaviour.busy * age,
            sm_count=context.sm_count if context is not None and context.under_mps else None,
            memory_gib=context.memory_gib if context is not None else None,
            batch=process.batch,
            batch_timeout_ms=process.batch_timeout_ms,
            steps=process.behaviour.steps_per_second * age or None,
        )

    def _find_process(self, port: int) -> Process | None:
        """Returns the process that answers there now."""
        for process in reversed(list(self._machine.processes.values())):
            if process.launch.port == port and port and process.exited_at is None:
                self._machine.at(process.launch.gpu, self._clock())
                runs = process.exited_at is None and process.swapped_gib is None
                return process if runs and self._machine.now >= process.answers_at else None
        return None
