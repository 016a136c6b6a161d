"""Says why a plan changes each service: by the difference of two plans, and by the causes that are known beside it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app.control.answer.explain.wording import money, rate
from app.control.domain.causes import ChangeCauses
from solvers.planning.plan_fields import held_gpus
from solvers.planning.wire import PlanInstanceWire, PlanJobWire, PlanLinesWire

SAME_SHARE = 1e-3  # of a rate: a smaller difference is no reason
NAMES_SHOWN = 2
HIDDEN = "another tenant's"

Shape: TypeAlias = tuple[str, tuple[int, ...], str, float, float]


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """What is known beside two plans: causes, what the GPUs of both cost an hour, and the tenant that reads."""

    causes: ChangeCauses = field(default_factory=ChangeCauses)
    costs: tuple[float, float] | None = None
    tenant: str = ""  # empty: an operator

    def spell_costs(self) -> str:
        if self.costs is None or self.tenant:
            return ""
        before, after = map(money, self.costs)
        return f": GPUs cost {after} an hour instead of {before}"

    def hide(self, name: str) -> str:
        """Returns the name, if the reader may know it."""
        return name if not self.tenant or name.startswith(f"{self.tenant}/") else HIDDEN


def explain_changes(
    before: PlanLinesWire | None, after: PlanLinesWire, changed: Iterable[str], facts: ChangeFacts
) -> dict[str, str]:
    """Returns a reason for each service that the second plan changes; a tenant reads no names and costs of others."""
    old, new = _PlanView(before), _PlanView(after)
    own = {name: list(_list_own(name, old, new, facts.causes)) for name in changed}
    urgent = {name for name, found in own.items() if found}
    return {name: "; ".join(found) or _explain_secondary(name, old, new, urgent, facts) for name, found in own.items()}


class _PlanView:
    """A plan by service and by GPU."""

    def __init__(self, plan: PlanLinesWire | None) -> None:
        self.unserved = {line["service"]: line["ratePerSecond"] for line in plan["unserved"]} if plan else {}
        self.shapes: dict[str, Counter[Shape]] = defaultdict(Counter)
        self.carried: dict[str, float] = defaultdict(float)
        self.at: dict[str, Counter[str]] = defaultdict(Counter)  # by GPU: SM% of each service and job
        for line in plan["instances"] if plan else ():
            name = line["service"]
            self.shapes[name][_shape_of(line)] += 1
            self.carried[name] += line["ratePerSecond"]
            self._hold(name, line)
        for job in plan["jobs"] if plan else ():
            self._hold(job["job"], job)

    def _hold(self, name: str, line: PlanInstanceWire | PlanJobWire) -> None:
        for gpu in held_gpus(line):
            self.at[f"{line['node']}/{gpu}"][name] += round(line["smPercent"])

    def lack(self, name: str) -> float:
        return self.unserved.get(name, 0.0)

    def rate(self, name: str) -> float:
        """Returns the rate that the plan was made for."""
        return self.carried.get(name, 0.0) + self.lack(name)

    def places(self, name: str) -> set[str]:
        return {f"{node}/{gpu}" for node, gpus, *_ in self.shapes.get(name, ()) for gpu in gpus}


def _shape_of(line: PlanInstanceWire) -> Shape:
    return line["node"], tuple(held_gpus(line)), line["variant"], line["smPercent"], round(line["memoryGib"], 3)


def _list_own(name: str, old: _PlanView, new: _PlanView, causes: ChangeCauses) -> Iterator[str]:
    """Yields what asks for a change of the service itself."""
    planned, before = new.rate(name), old.rate(name)
    if name in causes.needs:
        yield causes.needs[name]
    elif not before:
        yield f"nothing of it was planned before; {rate(planned)} requests a second are now"
    elif not planned:
        yield "it is not planned for any more"
    if before and planned and abs(planned - before) > SAME_SHARE * before:
        yield f"it is planned for {rate(planned)} requests a second instead of {rate(before)}"
    left = sorted(old.places(name) - new.places(name))
    yield from list(dict.fromkeys(causes.closed[place] for place in left if place in causes.closed))[:NAMES_SHOWN]
    if before and old.lack(name) > SAME_SHARE * before and new.lack(name) < old.lack(name):
        yield f"{rate(old.lack(name))} of its requests a second were unserved"


def _explain_secondary(name: str, old: _PlanView, new: _PlanView, urgent: set[str], facts: ChangeFacts) -> str:
    """Returns why a service changes that itself needs nothing else."""
    given = [place for place in sorted(old.places(name)) if new.at[place][name] < old.at[place][name]]
    takers = [(other, place) for place in given for other in _find_growing(place, name, old, new)]
    pressing = [pair for pair in takers if pair[0] in urgent]
    emptied = [place for place in given if not new.at[place].total()]
    if emptied and not pressing:
        saves = facts.costs is not None and facts.costs[1] < facts.costs[0]
        return f"it leaves {_join(emptied[:NAMES_SHOWN])} empty{facts.spell_costs() if saves else ''}"
    if takers:
        shown = sorted(pressing or takers)[:NAMES_SHOWN]
        return f"it makes room for {_join(f'{facts.hide(other)} on {place}' for other, place in shown)}"
    changed = [
        (other, place)
        for place in sorted(old.places(name) & new.places(name))
        for other in sorted({*old.at[place], *new.at[place]} - {name})
        if old.at[place][other] != new.at[place][other]
    ]
    if changed:
        other, place = min(changed, key=lambda pair: (pair[0] not in urgent, pair))
        return f"{facts.hide(other)} changes beside it on {place}"
    if old.shapes.get(name) == new.shapes.get(name):
        return "its requests are shared otherwise among its instances, or these take other batches or clocks"
    return f"it is part of a plan for all services{facts.spell_costs()}"


def _find_growing(place: str, name: str, old: _PlanView, new: _PlanView) -> list[str]:
    """Returns the other services and jobs that have more of a GPU than before."""
    return sorted(other for other, share in new.at[place].items() if other != name and share > old.at[place][other])


def _join(words: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(words))


def read_causes(solved_by: Mapping[str, object]) -> ChangeCauses:
    """Returns the causes that a decision has on record; none of an older one."""
    kept = solved_by.get("causes")
    if not isinstance(kept, dict):
        return ChangeCauses()
    return ChangeCauses(dict(kept.get("needs", {})), dict(kept.get("closed", {})))
