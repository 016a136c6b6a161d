"""Keeps a plan under judgement in parts, so that an edit is judged by what it touches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import fsum
from typing import TypeAlias

from solvers.planning.judge import cost, gpus, jobs, services, shapes, tenants, whole
from solvers.planning.judge.billing import is_billed_whole
from solvers.planning.judge.churn import Churn
from solvers.planning.judge.plan_edit import PlanEdit
from solvers.planning.judge.plan_lines import PlanLines, line_of, shape_of, where
from solvers.planning.judge.readings import JobResident, JudgedGpu, Resident, slow_down, watts
from solvers.planning.judge.tolerances import BUDGET_SHARE
from solvers.planning.judge.verdict import Verdict, Violation
from solvers.planning.judge.violations import Violations, is_broken
from solvers.planning.plan import Cost, Plan, Unplaced, Unserved
from solvers.planning.problem import Instance, Place, PlacedJob, Problem

# Tells which residents keep their SLO without simulating them; it gets those whose exec is known.
Keeps: TypeAlias = Callable[[Problem, Sequence[Resident]], Sequence[bool]]
FIXED = ("gpu_types", "nodes", "models", "profiles", "jobs", "policy", "limits")


class JudgedPlan:
    """A plan with the findings on each GPU, node, service, tenant and job.

    `keeps` judges SLOs without simulation; without it SLOs are not judged here.
    """

    def __init__(self, problem: Problem, plan: Plan, keeps: Keeps | None = None) -> None:
        self.problem = problem
        self._keeps = keeps
        policy = problem.policy
        self._watts_matter = bool(policy.energy_price_per_kwh) or policy.power_budget_w is not None
        self._idle_w = fsum(problem.gpu_types[node.gpu_type].idle_w * node.gpu_count for node in problem.nodes.values())
        self._lines = PlanLines(problem)
        self._unserved: dict[str, list[Unserved]] = defaultdict(list)
        self._unplaced: dict[str, list[Unplaced]] = defaultdict(list)
        # What was found of each part; sums are taken exactly, so that their order does not matter
        self._broken = Violations()
        self._sound: set[tuple[object, ...]] = set()  # shapes that break no rule of their own
        self._resource_cost: dict[Place, float] = {}
        self._job_gpu_cost: dict[Place, float] = {}
        self._busy_w: dict[Place, float] = {}  # above idle, on average
        self._shares: dict[str, dict[Place, tuple[float, float]]] = defaultdict(dict)  # tenant: place: share, price
        self._unserved_cost: dict[str, float] = {}
        self._idle_job_cost: dict[str, float] = {}
        self._churn = Churn(problem)
        running = problem.state.jobs if problem.state else ()
        self._staying = {placed.job: placed for placed in running if not problem.jobs[placed.job].is_preemptible}
        for entry in plan.unserved:
            self._unserved[entry.service].append(entry)
        for out in plan.unplaced:
            self._unplaced[out.job].append(out)
        touched = {place for instance in plan.instances for place in self._seat(instance)}
        touched.update(place for placed in plan.jobs for place in self._seat_job(placed))
        self._judge_gpus(touched.union(self._churn.places))
        judged_by = (self._judge_node, self._judge_service, self._judge_tenant, self._judge_job)
        for part, names in zip(judged_by, (problem.nodes, problem.services, problem.limits, problem.jobs), strict=True):
            for name in names:
                part(name)
        self._judge_names()

    @property
    def residents(self) -> Iterator[Resident]:
        """Yields every instance with its execution time among its neighbours."""
        for lines in self._lines.by_service.values():
            yield from lines.values()

    @property
    def job_residents(self) -> Iterator[JobResident]:
        for lines in self._lines.by_job.values():
            yield from lines

    def on(self, place: Place) -> JudgedGpu | None:
        """Returns a GPU with what runs there, or None if nothing does."""
        return self._lines.gpus.get(place)

    def apply(self, change: PlanEdit, problem: Problem | None = None) -> Verdict:
        """Judges the plan after this edit, under a problem that differs in its services' rates at most.

        What runs now stays what it was at the start or when last settled: of the new problem's State only the time is
        read.
        """
        named = {instance.service for instance in (*change.stop, *change.start)} | change.unserved.keys()
        if problem is not None:
            named |= self._take_over(problem)
        stop, start = self._retune(change)
        touched = {place for instance in stop for place in self._unseat(instance)}
        touched.update([place for placed in change.stop_jobs for place in self._unseat_job(placed)])
        touched.update([place for instance in start for place in self._seat(instance)])
        touched.update([place for placed in change.start_jobs for place in self._seat_job(placed)])
        for service, entry in change.unserved.items():
            self._unserved[service] = [entry] if entry else []
        for job, out in change.unplaced.items():
            self._unplaced[job] = [out] if out else []
        self._judge_gpus(touched)
        named |= self._lines.survivors_on(touched)
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
        """From now on, the plan is what runs."""
        self._churn.settle()

    def verdict(self) -> Verdict:
        """Adds up all findings."""
        judged = Cost(
            resource=fsum(self._resource_cost.values()),
            unserved=fsum(self._unserved_cost.values()),
            job=fsum([*self._job_gpu_cost.values(), *self._idle_job_cost.values()]),
            churn=self._churn.cost() if self.problem.state else 0.0,
        )
        found = tuple(sorted([*self._broken.all(), *self._power_budget_holds()]))
        return Verdict(found, judged, self._churn.total())

    # Lines are added and removed

    def _seat(self, instance: Instance) -> tuple[Place, ...]:
        line, gpu = self._lines.seat(instance, instance.place)
        self._judge_line(line, gpu)
        return instance.places

    def _unseat(self, instance: Instance) -> tuple[Place, ...]:
        line = self._lines.unseat(instance)
        for scope in ("line", "load", "slo"):
            self._broken.forget((scope, id(line)))
        return instance.places

    def _seat_job(self, placed: PlacedJob) -> tuple[Place, ...]:
        line, gpu = self._lines.seat_job(placed)
        self._broken.note(("line", id(line)), lambda: where(placed), jobs.LINE_RULES, self.problem, line, gpu)
        return placed.places

    def _unseat_job(self, placed: PlacedJob) -> tuple[Place, ...]:
        self._broken.forget(("line", id(self._lines.unseat_job(placed))))
        return placed.places

    def _retune(self, change: PlanEdit) -> tuple[list[Instance], list[Instance]]:
        """Takes over instances that differ in rate and timeout alone: neighbours and sums do not depend on these.

        Returns what is left to stop and to start.
        """
        if self._watts_matter:  # the busy time depends on them
            return list(change.stop), list(change.start)
        start: dict[tuple[object, ...], Instance] = {}
        twins = [twin for twin in change.start if start.setdefault(shape_of(twin), twin) is not twin]
        stop: list[Instance] = []
        retuned: list[Resident] = []
        for instance in change.stop:
            gpu = self._lines.gpus.get(instance.place)
            after = start.pop(shape_of(instance), None) if gpu else None
            if gpu is None or after is None:
                stop.append(instance)
                continue
            line = line_of(gpu, instance)
            line.instance = after
            retuned.append(line)
            if ("line", id(line)) in self._broken or is_broken(shapes.TUNING_RULES, self.problem, line, gpu):
                self._judge_line(line, gpu)
            self._judge_load(line, gpu)
        for place in {line.instance.place for line in retuned}:
            self._churn.update(place, self._lines.gpus[place])
        self._judge_slos(retuned)
        return stop, [*start.values(), *twins]

    def _take_over(self, problem: Problem) -> set[str]:
        """Takes over a new problem; returns the services that it changes."""
        old, new = self.problem, problem
        if any(getattr(old, name) is not getattr(new, name) for name in FIXED):
            raise ValueError("a judged plan takes other rates only; judge another problem from the start")
        self.problem = self._lines.reader.problem = new
        renewed = {name for name, service in new.services.items() if service is not old.services.get(name)}
        for name in renewed:
            for line in self._lines.by_service[name].values():
                line.service = new.services[name]
        return renewed

    # Each part by its rules

    def _judge_line(self, line: Resident, gpu: JudgedGpu | None) -> None:
        instance = line.instance
        own = whole.rules_of(line)
        if own or gpu is None or not (instance.rate_per_second > 0 and instance.batch_timeout_ms >= 0):
            self._broken.note(("line", id(line)), lambda: where(instance), own or shapes.RULES, self.problem, line, gpu)
            return
        # Rate and timeout are valid: the other rules find the same for every line of this shape on such a GPU.
        shape = (
            instance.service, instance.variant, instance.batch, instance.sm_percent, instance.memory_gib,
            instance.clock_mhz, gpu.type.name, gpu.node.templates, gpu.node.cell,
        )  # fmt: skip
        if shape not in self._sound or self._broken.by_part:
            self._broken.note(("line", id(line)), lambda: where(instance), shapes.RULES, self.problem, line, gpu)
            if ("line", id(line)) not in self._broken:
                self._sound.add(shape)

    def _judge_load(self, line: Resident, gpu: JudgedGpu) -> None:
        self._broken.note(("load", id(line)), lambda: where(line.instance), shapes.LOAD_RULES, self.problem, line, gpu)

    def _judge_gpus(self, places: Iterable[Place]) -> None:
        promised: list[Resident] = []  # an instance on several GPUs once
        for place in places:
            gpu = self._lines.gpus.get(place)
            if gpu is None:
                self._churn.update(place, self._lines.missing_gpus.get(place))
                continue
            for shares in self._shares.values():
                shares.pop(place, None)
            if gpu.residents or gpu.jobs:
                self._judge_gpu(place, gpu)
                promised += [line for line in gpu.residents if line.instance.place == place]
                continue
            self._lines.drop_gpu(place)
            for known in (self._resource_cost, self._job_gpu_cost, self._busy_w):
                known.pop(place, None)
            self._broken.forget(("gpu", place))
            self._churn.update(place, None)
        self._judge_slos(promised)

    def _judge_gpu(self, place: Place, gpu: JudgedGpu) -> None:
        slow_down(gpu, policy := self.problem.policy)
        self._broken.note(("gpu", place), lambda: gpu.name, gpus.RULES, self.problem, gpu)
        for line in gpu.residents:
            if self._broken.by_part or is_broken(shapes.LOAD_RULES, self.problem, line, gpu):
                self._judge_load(line, gpu)
        busy_w = 0.0
        if self._watts_matter:
            busy_w = fsum([watts(line, gpu) * cost.busy_share(line) for line in gpu.residents])
            self._busy_w[place] = fsum([busy_w, *(watts(job, gpu) for job in gpu.jobs)])
        self._resource_cost[place] = cost.resource_cost(gpu, policy, busy_w)
        self._job_gpu_cost[place] = cost.job_gpu_cost(gpu, policy)
        if self.problem.limits:
            for tenant, share in tenants.shares_of(gpu).items():
                self._shares[tenant][place] = (share, gpu.node.price_per_hour)
        self._churn.update(place, gpu)

    def _judge_slos(self, lines: Sequence[Resident]) -> None:
        if self._keeps is None:
            return
        known = [line for line in lines if line.exec_ms is not None or whole.is_sound(self.problem, line)]
        for line, is_kept in zip(known, self._keeps(self.problem, known), strict=True):
            if not is_kept or self._broken:
                self._broken.note(
                    ("slo", id(line)), partial(where, line.instance), (services.slo_holds,), line, is_kept
                )

    def _judge_node(self, name: str) -> None:
        if name in self._lines.by_node:
            node, on_it, policy = self.problem.nodes[name], [*self._lines.by_node[name].values()], self.problem.policy
            self._broken.note(("node", name), name, gpus.NODE_RULES, self.problem, node, on_it)
            if is_billed_whole(node, policy):
                whole = (name, cost.WHOLE_NODE)
                self._resource_cost[whole], self._job_gpu_cost[whole] = cost.node_costs(node, on_it, policy)

    def _judge_service(self, name: str) -> None:
        service = self.problem.services.get(name)
        if service is not None:
            lines, claims = self._lines.by_service[name].values(), self._unserved.get(name, ())
            self._broken.note(("service", name), name, services.RULES, self.problem, service, lines, claims)
            self._unserved_cost[name] = cost.price_unserved(service, self.problem.policy, claims) if claims else 0.0

    def _judge_tenant(self, name: str) -> None:
        self._broken.note(
            ("tenant", name), name, tenants.RULES, self.problem, self.problem.limits[name], self._shares[name]
        )

    def _judge_job(self, name: str) -> None:
        job = self.problem.jobs[name]
        lines, claims, stays = self._lines.by_job[name], self._unplaced[name], self._staying.get(name)
        self._broken.note(("job", name), name, jobs.RULES, self.problem, job, lines, claims, stays)
        self._idle_job_cost[name] = cost.idle_job_cost(job, self.problem.policy, lines, claims)

    def _judge_names(self) -> None:
        for name, entry in self._unserved.items():
            self._broken.note(("unserved", name), name, (services.unserved_exists,), self.problem, name, entry)
        for name, out in self._unplaced.items():
            self._broken.note(("unplaced", name), name, (jobs.unplaced_exists,), self.problem, name, out)

    def _power_budget_holds(self) -> list[Violation]:
        """idleW of every GPU + sum of busy watts x the fraction of time busy <= powerBudgetW, up to 2 %"""
        budget = self.problem.policy.power_budget_w
        if budget is None:
            return []
        drawn = fsum([self._idle_w, *self._busy_w.values()])
        if drawn <= budget * (1 + BUDGET_SHARE):
            return []
        return [Violation("fleet", "power_budget_holds", f"it draws {drawn:.6g} W, over its budget of {budget:g} W")]
