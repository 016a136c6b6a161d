"""A plan under judgement, kept in parts, so that a change to it is judged by what it touches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import fsum
from typing import TypeAlias

from solvers.planning.judge import cost, gpus, jobs, services, shapes, tenants
from solvers.planning.judge.changes import NO_CHANGES, ChangeTally, GpuChanges, changes_on
from solvers.planning.judge.readings import JobResident, JudgedGpu, Reader, Resident, slow_down, watts
from solvers.planning.judge.tolerances import BUDGET
from solvers.planning.judge.verdict import Verdict, Violation
from solvers.planning.plan import Cost, Plan, Unplaced, Unserved
from solvers.planning.problem import Instance, PlacedJob, Problem

Place: TypeAlias = tuple[str, int]
# Whether each keeps its SLO, by some verdict other than the referee's; asked of those whose exec is known.
Keeps: TypeAlias = Callable[[Problem, Sequence[Resident]], Sequence[bool]]
FIXED = ("gpu_types", "nodes", "models", "profiles", "jobs", "policy", "limits")


@dataclass(frozen=True, slots=True)
class PlanEdit:
    """What a plan becomes another by. A retuned instance stops as it was and starts as it is."""

    stop: tuple[Instance, ...] = ()
    start: tuple[Instance, ...] = ()
    stop_jobs: tuple[PlacedJob, ...] = ()
    start_jobs: tuple[PlacedJob, ...] = ()
    unserved: Mapping[str, Unserved | None] = field(default_factory=dict)  # None: no longer
    unplaced: Mapping[str, Unplaced | None] = field(default_factory=dict)


class JudgedPlan:
    """A plan with what is known of each GPU, node, service, tenant and job.

    `keeps` is a verdict on SLOs without simulation; without it SLOs are not judged here.
    """

    def __init__(self, problem: Problem, plan: Plan, keeps: Keeps | None = None) -> None:
        self.problem = problem
        self._keeps = keeps
        self._reader = Reader(problem)
        policy = problem.policy
        self._watts_matter = bool(policy.energy_price_per_kwh) or policy.power_budget_w is not None
        self._idle_w = fsum(problem.gpu_types[node.gpu_type].idle_w * node.gpu_count for node in problem.nodes.values())
        # Lines of the plan, by where they stand and whose they are
        self._gpus: dict[Place, JudgedGpu] = {}
        self._by_node: dict[str, dict[Place, JudgedGpu]] = defaultdict(dict)
        self._by_service: dict[str, dict[int, Resident]] = defaultdict(dict)
        self._by_job: dict[str, list[JobResident]] = defaultdict(list)
        self._astray: dict[Place, JudgedGpu] = {}  # GPUs that are not there
        self._unserved: dict[str, list[Unserved]] = defaultdict(list)
        self._unplaced: dict[str, list[Unplaced]] = defaultdict(list)
        # What was found of each part; sums are taken exactly, so that their order does not matter
        self._broken: dict[tuple[str, object], list[Violation]] = {}
        self._sound: set[tuple[object, ...]] = set()  # shapes that break no rule of their own
        self._resource_cost: dict[Place, float] = {}
        self._job_gpu_cost: dict[Place, float] = {}
        self._busy_w: dict[Place, float] = {}  # above idle, on average
        self._shares: dict[str, dict[Place, tuple[float, float]]] = defaultdict(dict)  # tenant: place: share, price
        self._unserved_cost: dict[str, float] = {}
        self._idle_job_cost: dict[str, float] = {}
        self._changes: dict[Place, GpuChanges] = {}
        self._tally = ChangeTally()
        self._churned: dict[Place, float] = {}  # price x SM% / 100; those over 0
        # What runs
        state = problem.state
        self._running: dict[Place, list[Instance]] = defaultdict(list)
        for instance in state.running if state else ():
            self._running[instance.place].append(instance)
        self._staying = {
            placed.job: placed
            for placed in (state.jobs if state else ())
            if not problem.jobs[placed.job].is_preemptible
        }
        self._unsettled: set[Place] = set()
        for left in plan.unserved:
            self._unserved[left.service].append(left)
        for out in plan.unplaced:
            self._unplaced[out.job].append(out)
        touched = {self._seat(instance) for instance in plan.instances}
        touched.update([self._seat_job(placed) for placed in plan.jobs])
        self._judge_gpus(touched | self._running.keys())
        for name in problem.nodes:
            self._judge_node(name)
        for name in problem.services:
            self._judge_service(name)
        for name in problem.limits:
            self._judge_tenant(name)
        for name in problem.jobs:
            self._judge_job(name)
        self._judge_names()

    @property
    def residents(self) -> Iterator[Resident]:
        """Every instance, with its execution time among its neighbours."""
        for lines in self._by_service.values():
            yield from lines.values()

    @property
    def job_residents(self) -> Iterator[JobResident]:
        for lines in self._by_job.values():
            yield from lines

    def on(self, place: Place) -> JudgedGpu | None:
        """A GPU with what runs there; None where nothing does."""
        return self._gpus.get(place)

    def apply(self, change: PlanEdit, problem: Problem | None = None) -> Verdict:
        """The verdict on the plan so changed, under a problem that differs in its services' rates at most.

        What runs now stays what it was when this began, or was last settled: of the new problem's State only the
        time is read.
        """
        named = {instance.service for instance in (*change.stop, *change.start)} | change.unserved.keys()
        if problem is not None:
            named |= self._take_over(problem)
        stop, start = self._retune(change)
        touched = {self._unseat(instance) for instance in stop}
        touched.update([self._unseat_job(placed) for placed in change.stop_jobs])
        touched.update([self._seat(instance) for instance in start])
        touched.update([self._seat_job(placed) for placed in change.start_jobs])
        for service, left in change.unserved.items():
            self._unserved[service] = [left] if left else []
        for job, out in change.unplaced.items():
            self._unplaced[job] = [out] if out else []
        self._judge_gpus(touched)
        for node in {place[0] for place in touched}:
            self._judge_node(node)
        for name in named:
            self._judge_service(name)
        for tenant in self.problem.limits if touched else ():
            self._judge_tenant(tenant)
        for name in self.problem.jobs:  # a neighbour's pressure may make any of them late
            self._judge_job(name)
        if change.unserved or change.unplaced:
            self._judge_names()
        return self.verdict()

    def settle(self) -> None:
        """From now on, what the plan says is what runs."""
        for place in self._unsettled:
            gpu = self._gpus.get(place)
            if gpu and gpu.residents:
                self._running[place] = [line.instance for line in gpu.residents]
            else:
                self._running.pop(place, None)
            self._judge_changes(place, gpu)
        self._unsettled = set()

    def verdict(self) -> Verdict:
        """What is known, added up."""
        judged = Cost(
            resource=fsum(self._resource_cost.values()),
            unserved=fsum(self._unserved_cost.values()),
            job=fsum([*self._job_gpu_cost.values(), *self._idle_job_cost.values()]),
            churn=self._churn_cost() if self.problem.state else 0.0,
        )
        found = [violation for violations in self._broken.values() for violation in violations]
        found += self._power_budget_holds()
        return Verdict(tuple(sorted(found)), judged, self._tally.total())

    # Lines come and go

    def _gpu(self, place: Place) -> tuple[JudgedGpu | None, JudgedGpu]:
        """The GPU if it is there, and where its lines are kept in any case."""
        gpu = self._gpus.get(place)
        if gpu is not None:
            return gpu, gpu
        node = self.problem.nodes.get(place[0])
        if node is None or not node.has_gpu(place[1]):
            if place not in self._astray:
                self._astray[place] = JudgedGpu.nowhere(place[1])
            return None, self._astray[place]
        gpu = JudgedGpu(node, self.problem.gpu_types[node.gpu_type], place[1])
        self._gpus[place] = self._by_node[node.name][place] = gpu
        return gpu, gpu

    def _seat(self, instance: Instance) -> Place:
        place = instance.place
        gpu, keeper = self._gpu(place)
        service = self.problem.services.get(instance.service)
        line = self._reader.resident(instance, service, gpu.node if gpu else None)
        keeper.residents.append(line)
        self._by_service[instance.service][id(line)] = line
        self._judge_line(line, gpu)
        return place

    def _unseat(self, instance: Instance) -> Place:
        _, keeper = self._gpu(instance.place)
        line = _line_of(keeper, instance)
        keeper.residents.remove(line)
        del self._by_service[instance.service][id(line)]
        for scope in ("line", "load", "slo"):
            self._broken.pop((scope, id(line)), None)
        return instance.place

    def _seat_job(self, placed: PlacedJob) -> Place:
        gpu, keeper = self._gpu(placed.place)
        line = self._reader.job(placed, gpu.node if gpu else None)
        keeper.jobs.append(line)
        self._by_job[placed.job].append(line)
        self._note("line", id(line), lambda: _where(placed), jobs.LINE_RULES, self.problem, line, gpu)
        return placed.place

    def _unseat_job(self, placed: PlacedJob) -> Place:
        _, keeper = self._gpu(placed.place)
        line = next(line for line in keeper.jobs if line.placed == placed)
        keeper.jobs.remove(line)
        self._by_job[placed.job].remove(line)
        self._broken.pop(("line", id(line)), None)
        return placed.place

    def _retune(self, change: PlanEdit) -> tuple[list[Instance], list[Instance]]:
        """Takes over what differs in nothing but rate and timeout, which neighbours and sums do not feel.

        Gives what is left to stop and to start.
        """
        if self._watts_matter:  # the time it is busy does
            return list(change.stop), list(change.start)
        start: dict[tuple[object, ...], Instance] = {}
        left = [one for one in change.start if start.setdefault(_shape(one), one) is not one]
        stop: list[Instance] = []
        retuned: list[Resident] = []
        for instance in change.stop:
            gpu = self._gpus.get(instance.place)
            after = start.pop(_shape(instance), None) if gpu else None
            if gpu is None or after is None:
                stop.append(instance)
                continue
            line = _line_of(gpu, instance)
            line.instance = after
            retuned.append(line)
            if ("line", id(line)) in self._broken or any(rule(self.problem, line, gpu) for rule in shapes.TUNING_RULES):
                self._judge_line(line, gpu)
            self._judge_load(line, gpu)
            self._judge_changes(after.place, gpu)
        self._judge_slos(retuned)
        return stop, [*start.values(), *left]

    def _take_over(self, problem: Problem) -> set[str]:
        """The services that the new problem states anew."""
        old, new = self.problem, problem
        if any(getattr(old, name) is not getattr(new, name) for name in FIXED):
            raise ValueError("a standing plan is judged under other rates only; for another problem begin a new one")
        self.problem = self._reader.problem = new
        renewed = {name for name, service in new.services.items() if service is not old.services.get(name)}
        for name in renewed:
            for line in self._by_service[name].values():
                line.service = new.services[name]
        return renewed

    # Each part by its rules

    def _note(
        self,
        scope: str,
        name: object,
        where: Callable[[], str] | str,
        rules: Sequence[Callable[..., str | None]],
        *about: object,
    ) -> None:
        """Keeps which of the rules are broken here; `where` may cost time to tell."""
        for rule in rules:
            if rule(*about) is not None:
                break
        else:
            if self._broken:
                self._broken.pop((scope, name), None)
            return
        at = where if isinstance(where, str) else where()
        told = [(rule.__name__, rule(*about)) for rule in rules]
        self._broken[scope, name] = [Violation(at, rule, sentence) for rule, sentence in told if sentence is not None]

    def _judge_line(self, line: Resident, gpu: JudgedGpu | None) -> None:
        instance = line.instance
        if gpu is None or not (instance.rate_per_second > 0 and instance.batch_timeout_ms >= 0):
            self._note("line", id(line), lambda: _where(instance), shapes.RULES, self.problem, line, gpu)
            return
        # Rate and timeout are in order: the rest of the rules say the same of every line of this shape on such a GPU.
        shape = (
            instance.service, instance.variant, instance.batch, instance.sm_percent, instance.memory_gib,
            instance.clock_mhz, gpu.type.name, gpu.node.templates,
        )  # fmt: skip
        if shape not in self._sound or self._broken:
            self._note("line", id(line), lambda: _where(instance), shapes.RULES, self.problem, line, gpu)
            if ("line", id(line)) not in self._broken:
                self._sound.add(shape)

    def _judge_load(self, line: Resident, gpu: JudgedGpu) -> None:
        self._note("load", id(line), lambda: _where(line.instance), shapes.LOAD_RULES, self.problem, line, gpu)

    def _judge_gpus(self, places: Iterable[Place]) -> None:
        promised: list[Resident] = []
        for place in places:
            gpu = self._gpus.get(place)
            if gpu is None:
                self._judge_changes(place, self._astray.get(place))
                continue
            for shares in self._shares.values():
                shares.pop(place, None)
            if gpu.residents or gpu.jobs:
                self._judge_gpu(place, gpu)
                promised += gpu.residents
                continue
            del self._gpus[place], self._by_node[place[0]][place]
            for known in (self._resource_cost, self._job_gpu_cost, self._busy_w):
                known.pop(place, None)
            self._broken.pop(("gpu", place), None)
            self._judge_changes(place, None)
        self._judge_slos(promised)

    def _judge_gpu(self, place: Place, gpu: JudgedGpu) -> None:
        problem, policy = self.problem, self.problem.policy
        slow_down(gpu, policy)
        self._note("gpu", place, gpu.name, gpus.RULES, problem, gpu)
        for line in gpu.residents:
            self._judge_load(line, gpu)
        busy_w = 0.0
        if self._watts_matter:
            busy_w = fsum([watts(line, gpu) * _busy(line) for line in gpu.residents])
            self._busy_w[place] = fsum([busy_w, *(watts(job, gpu) for job in gpu.jobs)])
        self._resource_cost[place] = cost.resource_cost(gpu, policy, busy_w)
        self._job_gpu_cost[place] = cost.job_gpu_cost(gpu, policy)
        if problem.limits:
            for tenant, share in tenants.shares_of(gpu).items():
                self._shares[tenant][place] = (share, gpu.node.price_per_hour)
        self._judge_changes(place, gpu)

    def _judge_changes(self, place: Place, gpu: JudgedGpu | None) -> None:
        planned = [line.instance for line in gpu.residents] if gpu else []
        found = changes_on(planned, self._running.get(place, ()))
        self._tally.replace(self._changes.get(place, NO_CHANGES), found)
        self._changes[place] = found
        self._unsettled.add(place)
        if found.churned_sm_percent and place[0] in self.problem.nodes:
            price = self.problem.nodes[place[0]].price_per_hour
            self._churned[place] = price * found.churned_sm_percent / 100
        else:
            self._churned.pop(place, None)

    def _churn_cost(self) -> float:
        """movePrice x sum over starts, moves and resizes of the GPU's price x smPercent / 100"""
        return self.problem.policy.move_price * fsum(self._churned.values())

    def _judge_slos(self, lines: Sequence[Resident]) -> None:
        if self._keeps is None:
            return
        known = [line for line in lines if line.exec_ms is not None]
        for line, kept in zip(known, self._keeps(self.problem, known), strict=True):
            if not kept or self._broken:
                self._note("slo", id(line), lambda line=line: _where(line.instance), (slo_holds,), line, kept)  # type: ignore[misc]

    def _judge_node(self, name: str) -> None:
        if name in self._by_node:
            on_it = list(self._by_node[name].values())
            self._note("node", name, name, gpus.NODE_RULES, self.problem, self.problem.nodes[name], on_it)

    def _judge_service(self, name: str) -> None:
        service = self.problem.services.get(name)
        if service is not None:
            lines, told = self._by_service[name].values(), self._unserved.get(name, ())
            self._note("service", name, name, services.RULES, self.problem, service, lines, told)
            self._unserved_cost[name] = cost.unserved_cost(service, self.problem.policy, told) if told else 0.0

    def _judge_tenant(self, name: str) -> None:
        self._note("tenant", name, name, tenants.RULES, self.problem, self.problem.limits[name], self._shares[name])

    def _judge_job(self, name: str) -> None:
        job = self.problem.jobs[name]
        lines, told, stays = self._by_job[name], self._unplaced[name], self._staying.get(name)
        self._note("job", name, name, jobs.RULES, self.problem, job, lines, told, stays)
        self._idle_job_cost[name] = cost.idle_job_cost(job, self.problem.policy, lines, told)

    def _judge_names(self) -> None:
        for name, told in self._unserved.items():
            self._note("unserved", name, name, (unserved_exists,), self.problem, name, told)
        for name, out in self._unplaced.items():
            self._note("unplaced", name, name, (unplaced_exists,), self.problem, name, out)

    def _power_budget_holds(self) -> list[Violation]:
        """idleW of every GPU + sum of busy watts x the fraction of time busy <= powerBudgetW, up to 2 %"""
        budget = self.problem.policy.power_budget_w
        if budget is None:
            return []
        drawn = fsum([self._idle_w, *self._busy_w.values()])
        if drawn <= budget * (1 + BUDGET):
            return []
        return [Violation("fleet", "power_budget_holds", f"it draws {drawn:.6g} W, over its budget of {budget:g} W")]


def unserved_exists(problem: Problem, name: str, told: Sequence[Unserved]) -> str | None:
    """unserved names services"""
    return f"there is no service {name}, which stands in unserved" if told and name not in problem.services else None


def unplaced_exists(problem: Problem, name: str, told: Sequence[Unplaced]) -> str | None:
    """unplaced names jobs"""
    return f"there is no job {name}, which stands in unplaced" if told and name not in problem.jobs else None


def slo_holds(line: Resident, kept: bool) -> str | None:
    """the verdict of whoever judges without simulation"""
    return None if kept else f"at {line.instance.rate_per_second:.6g} a second its latency is over the SLO"


def _shape(instance: Instance) -> tuple[object, ...]:
    return (
        instance.service, instance.node, instance.gpu, instance.variant,
        instance.batch, instance.sm_percent, instance.memory_gib, instance.clock_mhz,
    )  # fmt: skip


def _line_of(gpu: JudgedGpu, instance: Instance) -> Resident:
    for line in gpu.residents:
        if line.instance is instance:
            return line
    return next(line for line in gpu.residents if line.instance == instance)


def _where(line: Instance | PlacedJob) -> str:
    return f"{line.service if isinstance(line, Instance) else line.job} on {line.node}/{line.gpu}"


def _busy(line: Resident) -> float:
    if line.exec_ms is None:
        return 1.0
    instance = line.instance
    return _busy_fraction(int(instance.batch), line.exec_ms, instance.rate_per_second, instance.batch_timeout_ms)


@lru_cache(maxsize=100_000)  # what runs alike in many places is simulated once
def _busy_fraction(batch: int, exec_ms: float, rate_per_second: float, timeout_ms: float) -> float:
    from solvers.planning.judge.busy import busy_fraction  # compiled, and seldom needed

    return busy_fraction(batch, exec_ms, rate_per_second, timeout_ms)
