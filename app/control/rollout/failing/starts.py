"""Says how long a start may take: a copy that needs longer is late, in a rollout as after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.contract.assignments import AssignedInstance
from app.control.domain.specs import START_SECONDS
from app.control.rollout.rules import RolloutRules, RolloutState
from app.manifests.shipped_templates import SHIPPED

SEEN_FACTOR = 2.0  # times the longest start of its variant
MOST_DOUBLINGS = 3


@dataclass(frozen=True, slots=True)
class SeenStarts:
    """The starts that this fleet has seen."""

    longest: Mapping[str, float] = field(default_factory=dict)  # by key of a profile, seconds
    failed: Mapping[str, int] = field(default_factory=dict)  # by service or job: tries that failed since it last ran
    retried: frozenset[str] = frozenset()  # instances that were late once


def read_seen_starts(state: RolloutState) -> SeenStarts:
    """Returns the starts that a rollout remembers."""
    moments = {(failure.owner, failure.at) for failure in state.failures if not failure.is_past}
    return SeenStarts(state.longest_starts, Counter(owner for owner, _ in moments), frozenset(state.retried))


def start_seconds(instance: AssignedInstance, node: str, rules: RolloutRules) -> float:
    """Returns how long its profile says that a start takes."""
    return rules.start_seconds.get(instance.profile_key(rules.gpu_types.get(node, "")), START_SECONDS)


def start_limit(instance: AssignedInstance, node: str, rules: RolloutRules, seen: SeenStarts) -> float:
    """Returns the seconds in which a start has to come further; twice as many at each further try."""
    key = instance.profile_key(rules.gpu_types.get(node, ""))
    limit = max(
        rules.least_seconds,
        rules.patience * start_seconds(instance, node, rules),
        _own_limit(instance),
        SEEN_FACTOR * seen.longest.get(key, 0.0),
    )
    tries = seen.failed.get(instance.owner, 0) + (instance.id in seen.retried)
    return limit * float(2 ** min(tries, MOST_DOUBLINGS))


def _own_limit(instance: AssignedInstance) -> float:
    """Returns how long the agent itself waits for it: what its template says, or the probe of an own server."""
    if instance.runtime:
        return instance.runtime.probes.start_seconds if instance.runtime.probes else 0.0
    shipped = SHIPPED.get(instance.template)
    return shipped.start_seconds if shipped else 0.0
