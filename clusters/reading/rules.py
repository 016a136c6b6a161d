"""Rules that keep pods running and apart: PodDisruptionBudgets, spread constraints, anti-affinity."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import Any

from clusters.estate import DisruptionBudget, PodSpread
from clusters.objects import KubeObject, name_of, read_field, read_list, read_mapping, read_text, read_whole

ALWAYS = 10**9  # replicas, more than any workload has


def read_budgets(budgets: Iterable[KubeObject], labels: Mapping[str, Any]) -> tuple[DisruptionBudget, ...]:
    """Returns the budgets, of the pods' namespace, that select pods with these labels."""
    return tuple(
        DisruptionBudget(
            name_of(item),
            _number_or_percent(read_field(item, "spec", "minAvailable")),
            _number_or_percent(read_field(item, "spec", "maxUnavailable")),
        )
        for item in budgets
        if selects(read_field(item, "spec", "selector"), labels)
    )


def selects(selector: object, labels: Mapping[str, Any]) -> bool:
    """Returns whether a label selector takes these labels; an empty one takes all, an absent one none."""
    if not isinstance(selector, Mapping):
        return False
    if any(labels.get(key) != value for key, value in read_mapping(selector, "matchLabels").items()):
        return False
    return all(holds(rule, labels) for rule in read_list(selector, "matchExpressions"))


def holds(rule: object, labels: Mapping[str, Any]) -> bool:
    """Returns whether one of matchExpressions takes these labels."""
    key, operator, values = read_text(rule, "key"), read_text(rule, "operator"), read_list(rule, "values")
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator in ("Gt", "Lt"):  # of node affinity
        number, bound = read_whole(labels, key), read_whole(values[0]) if len(values) == 1 else None
        return number is not None and bound is not None and (number > bound if operator == "Gt" else number < bound)
    return (key in labels) == (operator == "Exists")


def _number_or_percent(value: object) -> str:
    return "" if value is None else str(value)


def read_surge(item: KubeObject, kind: str) -> int:
    """Returns below how many replicas a rollout may end no pod before another one is ready; percents round down."""
    strategy = read_mapping(item, "spec", "strategy")
    if "blueGreen" in strategy:
        return ALWAYS
    rule = read_mapping(strategy, "rollingUpdate" if kind == "Deployment" else "canary")
    surge, unavailable = (_number_or_percent(rule.get(key, "25%")) for key in ("maxSurge", "maxUnavailable"))
    if read_text(strategy, "type") == "Recreate" or surge in ("0", "0%"):
        return 0
    match = re.fullmatch(r"(\d{1,9})(%?)", unavailable)
    count = int(match[1]) if match else 0
    if not count:
        return ALWAYS
    return ceil(100 / count) if match and match[2] else 0


def read_spread(spec: KubeObject, labels: Mapping[str, Any]) -> tuple[PodSpread, ...]:
    """Returns the hard rules that keep pods with this spec and these labels apart from each other."""
    return tuple(dict.fromkeys(_spread(spec, labels)))


def _spread(spec: KubeObject, labels: Mapping[str, Any]) -> Iterator[PodSpread]:
    for rule in read_list(spec, "topologySpreadConstraints"):
        is_hard = read_text(rule, "whenUnsatisfiable") != "ScheduleAnyway"
        if is_hard and selects(read_field(rule, "labelSelector"), labels):
            yield PodSpread(read_text(rule, "topologyKey"), read_whole(rule, "maxSkew") or 1)
    apart = read_mapping(spec, "affinity", "podAntiAffinity")
    for rule in read_list(apart, "requiredDuringSchedulingIgnoredDuringExecution"):
        if selects(read_field(rule, "labelSelector"), labels):
            yield PodSpread(read_text(rule, "topologyKey"), None)
