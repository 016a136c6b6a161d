"""Nothing worse is ever recorded: random plans in hand, weighed by arithmetic that shares nothing with the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from app.control.decide import least_change
from app.control.decide.assigning import assign_plan
from app.control.decide.choosing import choose
from app.control.decide.decide import LONGEST_ROLLING, draft_changes, hold_back, rollout_in_progress
from app.control.domain.decision import Decision, SolveOutcome, SolverAnswer
from app.control.domain.desired import Desired
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, NodeStatus, Rest, Snapshot
from app.control.formulate.formulate import formulate
from app.control.rollout.declared_rules import read_rules
from app.control.rollout.ordering.finding import order
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Instance
from tests.solvers.planning.random_problems import NOON
from tests.support.soak import scaled

PRICES = {"small": 0.5, "big": 3.2}
NODES = {"n1": "small", "n2": "big"}
GPUS = 2
SERVICES = {"shop/a": 40.0, "shop/b": 30.0, "shop/c": 20.0, "shop/d": 10.0}
MEMORY_GIB, EACH_GIB = 16.0, 2.0
MOVE_PRICE, HORIZON_MINUTES, UNSERVED_PRICE = 0.1, 60.0, 1000.0
LEAST_LACK_SHARE = 1e-4
SOON_HOURS = 0.1  # in which the hand-overs that answer a lack repay their churn, or wait
FEW_AT_ONCE = 3  # hand-overs that answer a lack without waiting

Place = tuple[str, int]


@dataclass(frozen=True)
class Weighed:
    """The cost of a fleet by this file's own arithmetic."""

    unserved: float
    per_hour: float
    churn: float

    @property
    def per_horizon(self) -> float:
        return self.per_hour * HORIZON_MINUTES / 60 + self.churn

    @property
    def soon(self) -> float:
        return self.per_hour * SOON_HOURS + self.churn


def world(rates: Mapping[str, float]) -> Snapshot:
    """A node of cheap GPUs and one of dear ones; every service runs anywhere, within its SLO."""
    declared = [
        DeclaredObject("Policy", "", "default", {
            "mode": "auto", "movePrice": MOVE_PRICE, "horizonMinutes": HORIZON_MINUTES,
            "unservedPrice": UNSERVED_PRICE, "energyPricePerKwh": 0.0, "pricing": "gpu",
        })
    ]  # fmt: skip
    for kind, price in PRICES.items():
        spec = {"memoryGib": MEMORY_GIB, "smCount": 80, "idleW": 40, "maxW": 300, "clocksMhz": [1500]}
        declared.append(DeclaredObject("GpuType", "", kind, spec | {"pricePerHour": price}))
    for node, kind in NODES.items():
        spec = {"gpuType": kind, "gpus": GPUS, "cpuCores": 64, "memoryGib": 512}
        declared.append(DeclaredObject("Node", "", node, spec))
    for name, rate in rates.items():
        model = f"m-{name[-1]}"
        declared.append(DeclaredObject("Model", "", model, {"variants": [{"name": "v", "accuracy": 0.8}]}))
        declared += [DeclaredObject("Profile", "", f"{model}-{kind}", _profile(model, kind)) for kind in PRICES]
        slo = {"latencyMs": 1000, "percentile": 95}
        declared.append(
            DeclaredObject("Service", "shop", name[-1], {"model": model, "slo": slo, "ratePerSecond": rate})
        )
    return Snapshot(
        at=NOON, epoch=1, nodes={node: NodeStatus(node, "reporting") for node in NODES},
        declared=tuple(sorted(declared, key=lambda item: (item.kind, item.tenant, item.name))),
        expected={name: ExpectedLoad(rate) for name, rate in rates.items()},
    )  # fmt: skip


def _profile(model: str, kind: str) -> dict[str, Any]:
    latency = {"1": {"10": 4.0, "100": 4.0}}
    return {"model": model, "variant": "v", "gpuType": kind, "latencyMs": latency, "memoryGib": {"1": EACH_GIB}}


def plan(r: Random, rates: Mapping[str, float], whole: bool) -> Plan:
    """Places each service on random GPUs; unless `whole`, a service may go partly or wholly without."""
    room = {(node, gpu): 100 for node in NODES for gpu in range(GPUS)}
    lines: list[Instance] = []
    unserved: list[Unserved] = []
    for name, rate in r.sample(sorted(rates.items()), len(rates)):
        sizes = [r.choice((20, 30, 40, 60)) for _ in range(r.choice((1, 1, 2, 3)))]
        found: list[tuple[Place, int]] = []
        for size in sizes:
            free = sorted(place for place in room if room[place] >= size and place not in dict(found))
            if free:
                place = r.choice(free)
                room[place] -= size
                found.append((place, size))
        part = 1.0 if whole or r.random() < 0.7 else r.choice((0.5, 0.9))
        if not found or part < 1:
            lack = rate * (1 - part) if found else rate
            unserved.append(Unserved(name, lack))
        share = rate * part / max(len(found), 1)
        for (node, gpu), size in found:
            lines.append(Instance(f"i{len(lines)}", name, node, gpu, "v", 1, 0.0, size, EACH_GIB, 1500.0, share))
    return Plan(tuple(lines), unserved=tuple(sorted(unserved, key=lambda lack: lack.service)))


def running(desired: Desired) -> dict[Place, Counter[tuple[str, float, float]]]:
    """Returns by GPU what runs there: service, SM% and memory."""
    found: dict[Place, Counter[tuple[str, float, float]]] = {}
    for node, wanted in desired.items():
        for line in wanted.instances:
            shape = (line.owner, line.sm_percent, line.memory_gib)
            found.setdefault((node, line.gpu), Counter())[shape] += 1
    return found


def weighed(desired: Desired, now: Desired, rates: Mapping[str, float]) -> Weighed:
    """Weighs a fleet, starting from the one that runs now."""
    carried = dict.fromkeys(rates, 0.0)
    for wanted in desired.values():
        for line in wanted.instances:
            carried[line.owner] += line.rate_per_second
    lacks = [rate - carried[name] for name, rate in rates.items()]
    unserved = sum(
        UNSERVED_PRICE * max(lack, 1.0)
        for lack, rate in zip(lacks, rates.values(), strict=True)
        if lack > LEAST_LACK_SHARE * rate
    )
    there, before = running(desired), running(now)
    per_hour = sum(PRICES[NODES[node]] for node, _ in there)
    churn = 0.0
    for (node, gpu), shapes in there.items():
        new = shapes - before.get((node, gpu), Counter())
        churn += MOVE_PRICE * PRICES[NODES[node]] * sum(sm / 100 * count for (_, sm, _), count in new.items())
    return Weighed(unserved, per_hour, churn)


def new_copies(now: Desired, target: Desired) -> int:
    """Returns how many copies start, also for the same service with another share of a GPU."""
    before = running(now)
    return sum((shapes - before.get(place, Counter())).total() for place, shapes in running(target).items())


def has_room_at_once(now: Desired, target: Desired) -> bool:
    """Returns whether all that runs and all that is to run fit next to each other: any order of steps will do."""
    before, after = running(now), running(target)
    for place in {*before, *after}:
        both = before.get(place, Counter()) | after.get(place, Counter())
        services = [service for service, _, _ in both]
        if len(set(services)) < len(services) or sum(sm * count for (_, sm, _), count in both.items()) > 100:
            return False
    return True


def drafted(now: Snapshot, found: Plan, kind: str) -> Decision:
    answer = SolverAnswer(SolveOutcome.SOLVED, found, is_least_change=kind == "follow")
    return draft_changes(now, formulate(now), answer)


def unchanged(decision: Decision) -> Decision:
    """Knows no batches."""
    return decision


def unshifted(decision: Decision) -> None:
    """Knows no other places for a plan without an order of steps."""


def in_force(r: Random, rates: Mapping[str, float]) -> Snapshot:
    """Returns a fleet that runs a random plan, made for other rates than today's in some cases."""
    then = {name: rate * r.choice((1.0, 1.0, 1.0, 0.8, 1.2)) for name, rate in rates.items()}
    made_for = world(then)
    desired = assign_plan(made_for, formulate(made_for), plan(r, then, whole=r.random() < 0.7))
    resting = r.sample(sorted(rates), 1) if r.random() < 0.5 else []
    return replace(
        world(rates), in_force=desired, target=1, resting=dict.fromkeys(resting, Rest(NOON + timedelta(minutes=5)))
    )


@pytest.mark.parametrize("few", [least_change.FEW_HANDOVERS, 1])
def test_no_decision_serves_less_than_a_plan_in_hand_or_costs_more_than_a_right_plan_in_force(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(least_change, "FEW_HANDOVERS", few)
    r = Random(few)
    changed = mixed = 0
    for case in range(scaled(5_000, 75)):
        rates = {name: rate * r.choice((0.6, 1.0, 1.5)) for name, rate in SERVICES.items()}
        now = in_force(r, rates)
        plans = [drafted(now, plan(r, rates, whole=r.random() < 0.8), kind) for kind in ("solve", "follow")]
        large, small = sorted(plans, key=lambda draft: _promise(draft, now.in_force, rates))
        large, small = _labelled(large, "solve"), _labelled(small, "follow")
        asked: list[Decision] = []

        def follow(only_if_moved: bool, small: Decision = small, asked: list[Decision] = asked) -> Decision:
            asked.append(small)
            return small

        found = choose(now, formulate(now), large, follow, unchanged, unshifted)
        result = weighed(found.desired, now.in_force, rates)
        before = weighed(now.in_force, now.in_force, rates)
        assert result.unserved <= before.unserved + 1e-6, case
        if result.unserved >= before.unserved - 1e-6:
            assert result.per_hour <= before.per_hour + 1e-6, case
            assert result.per_horizon <= before.per_horizon + 1e-6, case
        for hand in (large, *asked):
            if has_room_at_once(now.in_force, hand.desired) and not now.resting.keys() & set(hand.services):
                other = weighed(hand.desired, now.in_force, rates)
                assert result.unserved <= other.unserved + 1e-6, case
                if result.unserved >= other.unserved - 1e-6:
                    may_wait = (
                        hand is large
                        and found.desired == small.desired
                        and (
                            result.unserved < before.unserved - 1e-6
                            and new_copies(now.in_force, large.desired) > FEW_AT_ONCE
                            and result.soon <= other.soon + 1e-6
                        )
                    )
                    assert may_wait or result.per_horizon <= other.per_horizon + 1e-6, case
        changed += found.desired != now.in_force
        mixed += found.desired not in (now.in_force, large.desired, small.desired)
    assert changed > 10
    assert mixed > 0


def test_a_lack_is_answered_by_little_unless_the_hand_overs_of_a_cheaper_plan_are_soon_repaid() -> None:
    """One more instance costs .5 or 3.2 an hour; instead, four hand-overs for .32 serve the same."""
    rates = {**SERVICES, "shop/a": 60.0}
    made_for = world(SERVICES)
    sizes = {"shop/a": 40, "shop/b": 30, "shop/c": 20, "shop/d": 10}

    def all_on(place: Place, rates: Mapping[str, float]) -> list[Instance]:
        return [
            Instance(f"i-{name}", name, *place, "v", 1, 0.0, sizes[name], EACH_GIB, 1500.0, rate)
            for name, rate in rates.items()
        ]

    desired = assign_plan(made_for, formulate(made_for), Plan(tuple(all_on(("n2", 0), SERVICES))))
    now = replace(world(rates), in_force=desired, target=1)
    question = formulate(now)
    assert question.falls_short
    large = drafted(now, Plan(tuple(all_on(("n2", 1), rates))), "solve")

    def with_one_more_on(place: Place) -> Decision:
        more = Instance("i-more", "shop/a", *place, "v", 1, 0.0, 20, EACH_GIB, 1500.0, 20.0)
        return drafted(now, Plan((*all_on(("n2", 0), SERVICES), more)), "follow")

    cheap, dear = with_one_more_on(("n1", 0)), with_one_more_on(("n2", 1))
    for small, cheapened, is_answer in ((cheap, cheap, True), (dear, dear, False), (dear, cheap, True)):
        assert large.value is not None
        assert small.value is not None
        assert large.value.is_better_than(small.value)
        found = choose(
            now, question, large,
            lambda only_if_moved, small=small: small,  # type: ignore[misc]
            lambda decision, cheapened=cheapened: cheapened,  # type: ignore[misc]
            unshifted,
        )  # fmt: skip
        assert found.desired == (small if is_answer else large).desired


def test_a_lack_that_no_plan_in_hand_lessens_keeps_no_cheaper_plan_waiting() -> None:
    rates = {**SERVICES, "shop/b": 50.0}
    made_for = world(SERVICES)
    sizes = {"shop/a": 40, "shop/b": 30, "shop/c": 20, "shop/d": 10}

    def running(places: Mapping[str, Place]) -> Plan:
        return Plan(
            tuple(
                Instance(f"i-{name}", name, *place, "v", 1, 0.0, sizes[name], EACH_GIB, 1500.0, SERVICES[name])
                for name, place in places.items()
            ),
            unserved=(Unserved("shop/b", 20.0),),
        )

    dear = dict.fromkeys(SERVICES, ("n2", 0))
    before = replace(running({**dear, "shop/d": ("n1", 0)}), unserved=())
    now = replace(world(rates), in_force=assign_plan(made_for, formulate(made_for), before), target=1)
    question = formulate(now)
    large = drafted(now, running(dict.fromkeys(SERVICES, ("n2", 1))), "solve")
    small = drafted(now, question.plan_in_force, "follow")
    found = choose(now, question, large, lambda only_if_moved: small, unchanged, unshifted)
    assert found.desired == large.desired


def _promise(draft: Decision, now: Desired, rates: Mapping[str, float]) -> tuple[float, float]:
    figures = weighed(draft.desired, now, rates)
    return figures.unserved, figures.per_horizon


def _labelled(draft: Decision, kind: str) -> Decision:
    return replace(draft, answer=replace(draft.answer, is_least_change=kind == "follow"))


@pytest.mark.parametrize(("grown", "waits"), [(1.0, True), (0.7, True), (1.005, True), (1.02, False)])
def test_a_rollout_finishes_first_unless_its_plan_lacks_a_hundredth_of_a_service(grown: float, waits: bool) -> None:
    made_for = world(SERVICES)
    desired = assign_plan(made_for, formulate(made_for), plan(Random(1), SERVICES, whole=True))
    now = replace(world({name: rate * grown for name, rate in SERVICES.items()}), in_force=desired, is_rolling=True)
    assert (rollout_in_progress(now, formulate(now), now.at) is not None) == waits
    long_ago = now.at - LONGEST_ROLLING
    lacks_little = grown == 1.005
    assert (rollout_in_progress(now, formulate(now), long_ago) is not None) == lacks_little, "savings wait no longer"


def test_an_order_starts_from_what_is_assigned_and_not_from_a_plan_that_is_half_rolled_out() -> None:
    """The plan in force leaves room where a copy that is still assigned has none to spare."""
    small = world(SERVICES)

    def fleet(**gpus: tuple[str, int, int]) -> Desired:
        lines = [
            Instance(
                f"i-{name}", f"shop/{name}", node, gpu, "v", 1, 0.0, size, EACH_GIB, 1500.0, SERVICES[f"shop/{name}"]
            )
            for name, (node, gpu, size) in gpus.items()
        ]
        return assign_plan(small, formulate(small), Plan(tuple(lines)))

    rest = {"c": ("n2", 1, 40), "d": ("n1", 1, 20)}
    assigned = fleet(a=("n1", 0, 60), b=("n2", 0, 60), **rest)
    planned = fleet(a=("n1", 1, 60), b=("n2", 0, 60), **rest)
    swapped = fleet(a=("n2", 0, 60), b=("n1", 0, 60), c=("n1", 1, 40), d=("n1", 1, 20))
    now = replace(small, in_force=planned, target=1, is_rolling=True)
    assert not order(now.assignments, swapped, read_rules(now.declared)).stuck
    halfway = replace(now, assigned=assigned)
    assert order(halfway.assignments, swapped, read_rules(now.declared)).stuck
    draft = drafted(halfway, question_plan(halfway, swapped), "solve")
    held = hold_back(halfway, formulate(halfway), draft).held_back
    assert {change.service for change in held if change.reason == "no_room_to_hand_over"} == {"shop/a", "shop/b"}


def question_plan(now: Snapshot, desired: Desired) -> Plan:
    """Returns a desired state as a plan."""
    return formulate(replace(now, in_force=desired, assigned=None)).plan_in_force
