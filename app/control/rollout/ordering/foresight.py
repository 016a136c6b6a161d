"""Foresees what services lack in the next minutes, while their fleet is brought to a target."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from agents.contract.fits import Shortfall
from app.control.domain.desired import Desired, sum_rates
from app.control.rollout.changes import InstanceChange
from app.control.rollout.failing.starts import start_seconds
from app.control.rollout.making import make, sort_changes
from app.control.rollout.ordering.rehearsal import RehearsedScene
from app.control.rollout.rules import RolloutRules

SOON_SECONDS = 180.0  # a load that rose steeply falls, or rises further, within minutes


def foresee_shortfalls(
    assigned: Desired, target: Desired, rules: RolloutRules, rates: Mapping[str, float]
) -> dict[str, float]:  # fmt: skip
    """Returns the mean rate that each service lacks in the next minutes, of the rates that they need.

    All that is assigned serves, each start takes as long as its profile says, and changes wait for each other as in a
    rollout. Where the steps end counts for as long again, so that a slow way is better than none.
    """
    stage, elsewhere = RehearsedScene(assigned, target, rules), sum_rates(assigned)
    turn = {change.id: place for place, change in enumerate(sort_changes(stage.todo.values(), ()))}
    lacked = dict.fromkeys(rates, 0.0)
    under_way: list[tuple[float, int, InstanceChange]] = []  # with the second in which each ends
    waiting: dict[str, Shortfall | None] = {}
    done: list[InstanceChange] = []
    now = 0.0

    def pass_time(until: float) -> None:
        for name, rate in rates.items():
            carried = stage.ledger.carried(name)
            lacked[name] += (until - now) * max(0.0, rate - (elsewhere.get(name, 0.0) if carried is None else carried))

    while now < SOON_SECONDS:
        todo = [stage.todo[id_] for id_ in sorted(stage.todo.keys() - waiting.keys(), key=turn.__getitem__)]
        made, waits = make(stage, todo, ())
        waiting |= {change.id: obstacle for change, obstacle in waits}
        for change in made:
            takes = start_seconds(change.instance, change.node, rules) if change.takes_room else 0.0
            heappush(under_way, (now + takes, turn[change.id], change))
        reset = stage.set_devices([*made, *done])
        if not under_way and not reset:
            break
        ends = min(under_way[0][0], SOON_SECONDS) if under_way else now
        pass_time(ends)
        now, done = ends, []
        while under_way and under_way[0][0] <= now:
            done.append(heappop(under_way)[2])
        for id_ in stage.touched([*made, *done], reset):
            waiting.pop(id_, None)
        stage.done(done)
    stage.done([change for _, _, change in under_way])
    pass_time(2 * SOON_SECONDS)
    return {name: rate / (2 * SOON_SECONDS) for name, rate in lacked.items() if rate}
