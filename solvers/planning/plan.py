"""A plan: instances, jobs, what is left out and why, and the certificate of its quality."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from solvers.planning.problem import Instance, PlacedJob, Policy, Problem

NONE_UNSERVED_SHARE = 1e-5  # of a service's rate: a smaller rest counts as served


@dataclass(frozen=True, slots=True)
class Unserved:
    """The rate of a service that no instance carries, the binding limit, and the least change that would serve it."""

    service: str
    rate_per_second: float
    reason: str = ""
    relaxation: str = ""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A job without a place."""

    job: str
    reason: str = ""
    relaxation: str = ""


@dataclass(frozen=True, slots=True)
class Releasable:
    """A node that runs nothing, and what releasing it would save."""

    node: str
    price_per_hour: float


@dataclass(frozen=True, slots=True)
class Changes:
    """Counts of what the plan does to the running instances."""

    keep: int = 0
    retune: int = 0
    resize: int = 0
    start: int = 0
    stop: int = 0
    move: int = 0

    @property
    def made(self) -> int:
        """Returns how many copies start, on another GPU or with another share."""
        return self.start + self.move + self.resize


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a plan, as the judge computes it."""

    resource: float
    unserved: float
    job: float = 0.0
    churn: float = 0.0

    @property
    def total(self) -> float:
        """Returns the cost that bound and gap refer to, without jobs and churn."""
        return self.resource + self.unserved

    def value(self, policy: Policy) -> float:
        """Returns what plans are compared by: the cost over the policy's horizon plus the churn."""
        return self.total * policy.horizon_minutes / 60 + self.churn

    def value_with_jobs(self, policy: Policy) -> float:
        """Returns the value, with the cost of jobs."""
        return self.value(policy) + self.job * policy.horizon_minutes / 60


@dataclass(frozen=True, slots=True)
class OtherPlan:
    """What the plan of another planner costs for the same problem, and the part of all requests that it serves."""

    planner: str
    cost: Cost | None  # none if the plan breaks a rule
    served_share: float
    refused: str = ""  # the rules that it breaks
    age_seconds: float = 0.0  # since it was made


@dataclass(frozen=True, slots=True)
class PriorityShortfall:
    """What a plan leaves unserved of a priority and all above, and what any plan leaves of them at least."""

    priority: int
    rate_per_second: float  # of all their services
    unserved_per_second: float
    bound_per_second: float | None


@dataclass(frozen=True, slots=True)
class Certificate:
    """The quality of a plan: its cost, a bound, the method that found it, and what plans of other planners cost."""

    cost: Cost
    bound: float | None
    method: str
    work: int
    seconds: float
    bound_age_seconds: float = 0.0  # since the search that proved the bound
    no_bound_reason: str = ""  # why there is no bound, where one is expected
    others: tuple[OtherPlan, ...] = ()
    programme: float | None = None  # what the linear programme behind the bound costs: an estimate, proves nothing
    shortfalls: tuple[PriorityShortfall, ...] = ()  # from the highest priority; of what a plan leaves unserved

    @property
    def gap(self) -> float | None:
        """Returns (cost - bound) / (bound - unserved cost); None where that is meaningless."""
        if self.bound is None or not self.bound - self.cost.unserved > 0:
            return None
        return max(0.0, self.cost.total - self.bound) / (self.bound - self.cost.unserved)

    def add_programme(self, programme: float | None) -> Certificate:
        """Returns the certificate with what the programme behind its bound costs, unless the plan costs less.

        A bound that is raised to the next possible cost may exceed its programme: then nothing of the gap is its own.
        """
        if programme is None or self.bound is None or programme > self.cost.total:
            return replace(self, programme=None)
        return replace(self, programme=max(programme, self.bound))


@dataclass(frozen=True, slots=True)
class Plan:
    """The instances and jobs that the solver decided on."""

    instances: tuple[Instance, ...]
    jobs: tuple[PlacedJob, ...] = ()
    unserved: tuple[Unserved, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    warnings: tuple[str, ...] = ()
    releasable: tuple[Releasable, ...] = ()
    changes: Changes = Changes()
    certificate: Certificate | None = None


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """The services of a plan in the making: instances, the rates they leave unserved, and how they were found."""

    instances: list[Instance]
    unserved: list[Unserved]
    origin: str


def find_served_share(problem: Problem, unserved: Iterable[Unserved]) -> float:
    """Returns the part of all requests that a plan with these unserved rates serves."""
    total = sum(service.rate_per_second for service in problem.services.values())
    return 1.0 - sum(entry.rate_per_second for entry in unserved) / total if total > 0 else 1.0


def take_shortfalls(problem: Problem, plan: Plan, searched: Plan | None) -> tuple[PriorityShortfall, ...]:
    """Returns what this plan leaves unserved, beside the bounds of a search for the same problem.

    A bound is none where the plan leaves less: a least change may go on breaking a rule.
    """
    found = []
    for row in searched.certificate.shortfalls if searched and searched.certificate else ():
        among = [entry for entry in plan.unserved if problem.services[entry.service].priority >= row.priority]
        left, bound = sum(entry.rate_per_second for entry in among), row.bound_per_second
        if bound is not None and bound > left:
            bound = left if bound <= left * (1 + NONE_UNSERVED_SHARE) else None
        found += [replace(row, unserved_per_second=left, bound_per_second=bound)] if left > 0 else []
    return tuple(found)


def list_unserved(problem: Problem, instances: Iterable[Instance]) -> tuple[Unserved, ...]:
    """Returns by service the rate that these instances do not carry."""
    carried = dict.fromkeys(problem.services, 0.0)
    for instance in instances:
        carried[instance.service] += instance.rate_per_second
    return tuple(
        Unserved(name, service.rate_per_second - carried[name])
        for name, service in sorted(problem.services.items())
        if service.rate_per_second - carried[name] > NONE_UNSERVED_SHARE * service.rate_per_second
    )
