"""What was decided: instances, jobs, what is left out and why, and the certificate that comes with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from solvers.planning.problem import Instance, PlacedJob, Policy, Problem

NONE_UNSERVED_SHARE = 1e-5  # of a service's rate: a smaller rest counts as served


@dataclass(frozen=True, slots=True)
class Unserved:
    """What of a service's rate no instance carries, the limit that binds, and the least change that would serve it."""

    service: str
    rate_per_second: float
    reason: str = ""
    relaxation: str = ""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A job that runs nowhere."""

    job: str
    reason: str = ""
    relaxation: str = ""


@dataclass(frozen=True, slots=True)
class Releasable:
    """A node that nothing runs on: what giving it back would save."""

    node: str
    price_per_hour: float


@dataclass(frozen=True, slots=True)
class Changes:
    """What the plan does to the instances that run."""

    keep: int = 0
    retune: int = 0
    resize: int = 0
    start: int = 0
    stop: int = 0
    move: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What a plan costs, by the judge."""

    resource: float
    unserved: float
    job: float = 0.0
    churn: float = 0.0

    @property
    def total(self) -> float:
        """What bound and gap speak of: jobs and churn are not part of it."""
        return self.resource + self.unserved

    def value(self, policy: Policy) -> float:
        """What plans are chosen by: the cost over the policy's horizon, and the churn that leads there."""
        return self.total * policy.horizon_minutes / 60 + self.churn


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good the plan is, and how that is known."""

    cost: Cost
    bound: float | None
    method: str
    work: int
    seconds: float

    @property
    def gap(self) -> float | None:
        """(cost - bound) / (bound - unserved cost); None where that says nothing."""
        if self.bound is None or not self.bound - self.cost.unserved > 0:
            return None
        return max(0.0, self.cost.total - self.bound) / (self.bound - self.cost.unserved)


@dataclass(frozen=True, slots=True)
class Plan:
    """The decided set of instances and jobs."""

    instances: tuple[Instance, ...]
    jobs: tuple[PlacedJob, ...] = ()
    unserved: tuple[Unserved, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    warnings: tuple[str, ...] = ()
    releasable: tuple[Releasable, ...] = ()
    changes: Changes = Changes()
    certificate: Certificate | None = None


def unserved_rest(problem: Problem, instances: Iterable[Instance]) -> tuple[Unserved, ...]:
    """Returns by service the rate that these instances do not carry."""
    carried = dict.fromkeys(problem.services, 0.0)
    for instance in instances:
        carried[instance.service] += instance.rate_per_second
    return tuple(
        Unserved(name, service.rate_per_second - carried[name])
        for name, service in sorted(problem.services.items())
        if service.rate_per_second - carried[name] > NONE_UNSERVED_SHARE * service.rate_per_second
    )
