"""The answer to a recorded question, in the words of the contract: what runs, what it costs, and what proves it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Answer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """One answer as it is compared and kept. Amounts are those of the judge, and prices are by the hour."""

    name: str
    outcome: str  # solved; of a cycle: the state of the plan that it recorded, else why it recorded none
    cost: float | None = None  # of what is served, with energy; None where there is no plan
    unserved: float = 0.0  # the price of what is not served
    served_per_second: float = 0.0  # of the load in the question, however the planner sees it
    job: float = 0.0
    churn: float = 0.0
    bound: float | None = None
    changes: Mapping[str, int] = {}
    broken: tuple[str, ...] = ()  # rules, each with its place
    placements: tuple[str, ...] = ()  # of a cycle: those that differ from what ran
    counts: Mapping[str, int] = {}  # of work that is the same on every machine

    @property
    def total(self) -> float:
        """Returns the cost that a bound is compared with."""
        return (self.cost or 0.0) + self.unserved

    @property
    def hand_overs(self) -> int:
        """Returns how many running copies move to another GPU or get another share of it."""
        return self.changes.get("move", 0) + self.changes.get("resize", 0)


class Origin(msgspec.Struct, frozen=True, rename="camel"):
    """What answers depend on besides questions and code: on another processor sums of floats may round otherwise."""

    processor: str
    versions: Mapping[str, str]


class Acceptance(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An intended change of answers, with the sums before and after it."""

    reason: str
    changed: tuple[str, ...]  # by name
    before: Mapping[str, float]
    after: Mapping[str, float]


def find_origin() -> Origin:
    """Returns what this process answers with."""
    from llvmlite import binding

    from app.control.solve.versions import versions

    known = {name: version for name, version in versions().items() if name != "gpuwright"}
    return Origin(binding.get_host_cpu_name(), known)
