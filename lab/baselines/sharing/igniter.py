"""iGniter (Xu et al., TPDS 2022): the least resources for each service, raised for interference, on few GPUs.

The batch follows from SLO and rate, b = SLO x rate / 2, rounded to a profiled one. A service joins the GPU where all
shares together must rise least for every time to stay within half of its SLO; an idle GPU is opened only where no
other can take it.
"""

from __future__ import annotations

from math import ceil

from lab.baselines.sharing.fleet import SharedShape, SharingFleet, leftovers, shared
from solvers.planning.judge.readings import value_at
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Knowledge, Place, Problem

STEP_PERCENT = 5
Guest = tuple[str, float, int]  # a service, the rate of an instance, its batch
Shares = dict[Guest, SharedShape]


def plan_igniter(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns iGniter's next plan."""
    return shared(problem, knowledge, _fill, "least shares raised for interference, least increase")


def _fill(fleet: SharingFleet) -> None:
    chosen: dict[Place, Shares] = {}
    left: list[str] = []
    wanted = [(name, rate) for name, service in fleet.problem.services.items() for rate in fleet.parts(service)]
    for name, rate in sorted(wanted, key=lambda entry: (-_least_percent(fleet, *entry), entry[0])):
        found = _cheapest(fleet, chosen, name, rate)
        if found is None:
            left.append(name)
        else:
            chosen[found[0]] = found[1]
    for place, shares in chosen.items():
        for (name, _, _), shape in shares.items():
            if fleet.can_put(place, name, shape):
                fleet.put(place, name, shape)
    for name in left:
        for place, shape in leftovers(fleet, name, STEP_PERCENT):
            fleet.put(place, name, shape)
            break


def _least_percent(fleet: SharingFleet, name: str, rate: float) -> int:
    alone = [_shares(fleet, place, [guest]) for place in fleet.places if (guest := _guest(fleet, place, name, rate))]
    return min((sum(shape.sm_percent for shape in found.values()) for found in alone if found), default=100)


def _cheapest(
    fleet: SharingFleet, chosen: dict[Place, Shares], name: str, rate: float
) -> tuple[Place, Shares] | None:  # fmt: skip
    options: list[tuple[tuple[bool, int, Place], Place, Shares]] = []
    for place in fleet.places:
        shares, guest = chosen.get(place, {}), _guest(fleet, place, name, rate)
        if guest is None or not _may_join(fleet, shares, name):
            continue
        found = _shares(fleet, place, [*shares, guest])
        if found is not None:
            risen = sum(s.sm_percent for s in found.values()) - sum(s.sm_percent for s in shares.values())
            options.append(((not shares, risen, place), place, found))
    return min(options, key=lambda option: option[0])[1:] if options else None


def _may_join(fleet: SharingFleet, shares: Shares, name: str) -> bool:
    services = [fleet.problem.services[guest[0]] for guest in shares]
    service = fleet.problem.services[name]
    if services and (service.is_dedicated or any(other.is_dedicated for other in services)):
        return False
    return all(other.model != service.model for other in services)


def _guest(fleet: SharingFleet, place: Place, name: str, rate: float) -> Guest | None:
    batches = fleet.batches(name, place)
    if not batches:
        return None
    wanted = ceil(fleet.problem.services[name].slo_ms / 1000 * rate / 2)
    return name, rate, max((batch for batch in batches if batch <= wanted), default=batches[0])


def _shares(fleet: SharingFleet, place: Place, guests: list[Guest]) -> Shares | None:
    """Raises the shares of all until each keeps half of its SLO beside the others; None if they do not fit."""
    percents = dict.fromkeys(guests, STEP_PERCENT)
    free_gib = fleet.problem.type_of(place[0]).memory_gib
    while sum(percents.values()) <= fleet.free_percent(place):
        found = {guest: _predict_shape(fleet, place, guest, percents) for guest in guests}
        short = [guest for guest, shape in found.items() if not _is_enough(fleet, guest, shape)]
        if not short:
            shares = {guest: shape for guest, shape in found.items() if shape}
            memory_gib = sum(shape.profile.memory_gib[shape.batch] for shape in shares.values())
            return shares if memory_gib <= free_gib else None
        for guest in short:
            percents[guest] += STEP_PERCENT
    return None


def _is_enough(fleet: SharingFleet, guest: Guest, shape: SharedShape | None) -> bool:
    half_ms = fleet.problem.services[guest[0]].slo_ms / 2
    return shape is not None and shape.exec_ms <= half_ms and shape.per_second >= guest[1]


def _predict_shape(fleet: SharingFleet, place: Place, guest: Guest, percents: dict[Guest, int]) -> SharedShape | None:
    """Returns the shape among its neighbours, as the fleet's profiles predict their interference."""
    name, _, batch = guest
    profile = fleet.profile_at(name, place)
    assert profile
    pressure = 0.0
    for other, percent in percents.items():
        theirs = fleet.profile_at(other[0], place)
        if other != guest and theirs:
            pressure += value_at(theirs.demand.whole_pressure, percent)
    slower = 1 + profile.demand.most_sensitivity * pressure
    return fleet.shape_of(name, place, batch, percents[guest], slower)
