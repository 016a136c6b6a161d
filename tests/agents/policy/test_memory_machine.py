"""No service runs out of device memory as processes come, grow and go: the guard against a model of a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agents.policy.memory import DeviceMemory, Guard, MemoryHolder, MemorySettings, Moves, free_gib, guard
from tests.support.soak import scaled

CAPACITY = 40.0
TINY = 1e-6


@dataclass
class Process:
    """One process on the model's GPU: it keeps the memory it has taken, and MPS refuses more than its limit."""

    name: str
    limit_gib: float
    job: bool
    used_gib: float = 0.0
    leaving: bool = False
    says: bool = True  # whether the device reports the memory it holds


class OneGpu(RuleBasedStateMachine):
    """Services wait until they are admitted; jobs run where there is room. The model knows the memory really in use."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = MemorySettings(headroom_gib=0.5, back_gib=1.0, back_seconds=5.0)
        self.processes: list[Process] = []
        self.waiting: list[tuple[str, float]] = []  # services
        self.jobs: dict[str, float] = {}  # wanted, with their limits
        self.driver_gib = 1.9  # it reserves more than the headroom for itself
        self.state = Guard()
        self.moves = Moves()
        self.now = 0.0
        self.born = 0
        self.failed: list[str] = []

    # The world.

    @rule(gib=st.integers(1, 30))
    def a_service_is_wanted(self, gib: int) -> None:
        self.born += 1
        self.waiting.append((f"s{self.born}", float(gib)))

    @rule(gib=st.integers(1, 30))
    def a_job_is_wanted(self, gib: int) -> None:
        self.born += 1
        self.jobs[f"j{self.born}"] = float(gib)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, 100), part=st.floats(0, 1))
    def a_process_grows_within_its_limit(self, which: int, part: float) -> None:
        process = self.processes[which % len(self.processes)]
        wanted = process.used_gib + part * (process.limit_gib - process.used_gib)
        if self._in_use() - process.used_gib + wanted > CAPACITY + TINY:
            self.failed.append(process.name)
        else:
            process.used_gib = wanted

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, 100), part=st.floats(0, 1))
    def a_process_gives_memory_back(self, which: int, part: float) -> None:
        self.processes[which % len(self.processes)].used_gib *= part

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, 100))
    def a_process_ends(self, which: int) -> None:
        process = self.processes.pop(which % len(self.processes))
        if process.job and process.name not in self.state.away:
            self.jobs.pop(process.name, None)

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 100))
    def a_service_is_not_wanted_any_more(self, which: int) -> None:
        self.waiting.pop(which % len(self.waiting))

    # The node, in the keeper's order.

    @rule(seconds=st.floats(0.1, 20))
    def the_guard_looks(self, seconds: float) -> None:
        self.now += seconds
        needed = min((gib for _, gib in self.waiting), default=0.0)
        before = self.state.away
        self.state, self.moves = guard(
            self.state, self._device(), self._holders(), needed, self.jobs, self.now, self.settings
        )
        for process in self.processes:
            if process.name in self.moves.stop:
                assert process.job, "only jobs are stopped"
                process.leaving = True
        assert not set(self.moves.bring_back) - before

    @rule()
    def what_leaves_is_gone(self) -> None:
        self.processes = [process for process in self.processes if not process.leaving]

    @rule()
    def services_start_first_and_jobs_where_there_is_room(self) -> None:
        for name, gib in list(self.waiting):
            if self._admitted(gib):
                self.waiting.remove((name, gib))
                self.processes.append(Process(name, gib, job=False))
        running = {process.name for process in self.processes}
        for name, gib in self.jobs.items():
            if name not in running | self.state.away and self._admitted(gib):
                self.processes.append(Process(name, gib, job=True))

    def _admitted(self, gib: float) -> bool:
        return gib <= free_gib(self._device(), self._holders(), self.settings) + TINY

    def _device(self) -> DeviceMemory:
        return DeviceMemory(CAPACITY, self._in_use())

    def _in_use(self) -> float:
        return self.driver_gib + sum(process.used_gib for process in self.processes)

    def _holders(self) -> list[MemoryHolder]:
        return [
            MemoryHolder(process.name, process.limit_gib, process.used_gib, process.job, leaving=process.leaving)
            for process in self.processes
        ]

    # The invariants.

    @invariant()
    def nobody_ran_out_of_memory(self) -> None:
        assert not self.failed

    @invariant()
    def everybody_could_grow_to_the_limit_at_once(self) -> None:
        assert self.driver_gib + sum(process.limit_gib for process in self.processes) <= CAPACITY + TINY

    @precondition(lambda self: self.waiting)
    @rule()
    def a_service_that_jobs_stand_in_the_way_of_starts_in_one_round(self) -> None:
        gib = min(gib for _, gib in self.waiting)
        services = sum(process.limit_gib for process in self.processes if not process.job)
        could = self.driver_gib + services + gib + self.settings.headroom_gib <= CAPACITY + TINY
        self.the_guard_looks(0.1)
        self.the_guard_looks(self.settings.short_seconds + 0.1)
        self.what_leaves_is_gone()
        assert self._admitted(gib) == could


OneGpu.TestCase.settings = settings(
    max_examples=scaled(3000, 150, 10), stateful_step_count=40, deadline=None, derandomize=True
)
TestOneGpu = OneGpu.TestCase
