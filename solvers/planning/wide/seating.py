"""Seats the chosen instances of language models on linked GPUs: those that stay first, then the widest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from solvers.planning.fleet.rooms import WholeNeed
from solvers.planning.fleet.token_shapes import TokenShape
from solvers.planning.problem import Instance, Node, Problem, Service
from solvers.planning.wide.groups import LinkedNodes, busy_places, rooms_beside_jobs
from solvers.planning.wide.programme import Choice


@dataclass(slots=True)
class _WideSeat:
    """An instance before its rate is known."""

    shape: TokenShape
    node: str
    gpus: tuple[int, ...]
    kept: Instance | None = None


class _WideSeating:
    """The whole GPUs that are left; what is new starts where least runs now."""

    def __init__(self, problem: Problem) -> None:
        self._rooms, self._busy = rooms_beside_jobs(problem), busy_places(problem)
        self._used: set[str] = set()

    def take(self, shape: TokenShape, node: str, gpus: Sequence[int]) -> None:
        self._rooms.hold_whole([(node, index) for index in gpus], _need(shape))
        self._used.add(node)

    def is_free(self, shape: TokenShape, kept: Instance, node: Node) -> bool:
        """Returns whether an instance that runs may stay on its GPUs."""
        is_linked = len({node.link_of(index) for _, index in kept.places}) == 1
        return is_linked and self._rooms.can_hold_whole(kept.places, _need(shape))

    def best(self, shape: TokenShape, group: LinkedNodes) -> tuple[str, tuple[int, ...]] | None:
        """Returns linked GPUs: on a node in use if possible, then where least runs, then where fewest are left."""
        need, busy, found = _need(shape), self._busy, []
        for node in group.nodes:
            for idle in self._rooms.idle_links(node):
                link: Sequence[int] = idle
                if node.caps_w:
                    link = [index for index in idle if self._rooms.can_hold_whole([(node.name, index)], need)]
                if len(link) >= shape.degree:
                    caps_w = node.caps_w or (0.0,) * (link[-1] + 1)  # the higher ones are left to what needs them
                    order = sorted(link, key=lambda index: (busy[node.name, index], caps_w[index], index))
                    gpus = tuple(sorted(order[: shape.degree]))
                    displaced = sum(busy[node.name, index] for index in gpus)
                    key = (node.name not in self._used, displaced, len(link) - shape.degree, node.name, gpus)
                    found.append((key, node.name, gpus))
        for _, name, gpus in sorted(found):
            if self._rooms.can_hold_whole([(name, index) for index in gpus], need):
                return name, gpus
        return None


def _need(shape: TokenShape) -> WholeNeed:
    return WholeNeed(shape.memory_gib, shape.busy_w, shape.cpu_cores, shape.host_memory_gib)


def seated(problem: Problem, groups: Sequence[LinkedNodes], choices: Sequence[Choice]) -> tuple[list[Instance], bool]:
    """Returns the instances with their rates, and if all of the chosen ones found their GPUs."""
    seating, seats = _WideSeating(problem), list[_WideSeat]()
    complete = True
    for choice in choices:
        if choice.kept is not None:
            gpus = tuple(index for _, index in choice.kept.places)
            if seating.is_free(choice.shape, choice.kept, problem.nodes[choice.kept.node]):
                seating.take(choice.shape, choice.kept.node, gpus)
                seats.append(_WideSeat(choice.shape, choice.kept.node, gpus, choice.kept))
            else:
                complete = False
    fresh = [choice for choice in choices if choice.kept is None]
    is_capped = any(group.caps_w for group in groups)  # then what is hot comes first
    for choice in sorted(
        fresh,
        key=lambda choice: (
            -choice.shape.degree, -choice.shape.busy_w if is_capped else 0.0, choice.shape.service,
            choice.shape.variant,
        ),
    ):  # fmt: skip
        for _ in range(choice.count):
            at = seating.best(choice.shape, choice.group)
            if at is None:
                complete = False
                continue
            seating.take(choice.shape, *at)
            seats.append(_WideSeat(choice.shape, *at))
    names = sorted({seat.shape.service for seat in seats})
    return [line for name in names for line in _rated(problem, name, seats)], complete


def _rated(problem: Problem, name: str, seats: Sequence[_WideSeat]) -> list[Instance]:
    """Returns the instances of a service with their parts of its rate."""
    service, mine = problem.services[name], [seat for seat in seats if seat.shape.service == name]
    rates = shares(service, [seat.shape.rate_per_second for seat in mine], problem, mine)
    if len(mine) < service.min_instances:
        return []
    return [_instance(name, seat, rate) for seat, rate in zip(mine, rates, strict=True) if rate > 0]


def shares(service: Service, most: Sequence[float], problem: Problem, seats: Sequence[_WideSeat]) -> list[float]:
    """Returns the rate of each instance: in proportion to what it carries, with minInstances as even as possible."""
    served = min(service.rate_per_second, sum(most))
    spot = [problem.nodes[seat.node].purchase == "spot" for seat in seats]
    share = service.availability.max_spot_share
    if share < 1 and any(spot):
        firm = sum(rate for rate, is_spot in zip(most, spot, strict=True) if not is_spot)
        served = min(served, firm / (1 - share))
        on_spot = min(share * served, sum(most) - firm)
        most = [
            min(rate, on_spot * rate / (sum(most) - firm)) if is_spot else rate
            for rate, is_spot in zip(most, spot, strict=True)
        ]
        served = min(served, sum(most))
    if service.mean_accuracy:
        return _accurate(service, most, [seat.shape.accuracy for seat in seats])
    if service.min_instances < 2 or not most:
        return [rate * served / sum(most) for rate in most] if most else []
    level, left = 0.0, served
    waiting = sorted(most)
    for number, rate in enumerate(waiting):
        rise = min(rate - level, left / (len(waiting) - number))
        level, left = level + rise, left - rise * (len(waiting) - number)
        if left <= 1e-12 * served:
            break
    return [min(rate, level) for rate in most]


def _accurate(service: Service, most: Sequence[float], accuracy: Sequence[float]) -> list[float]:
    """Returns rates whose mean accuracy is kept: accurate variants carry all they can, the others what it allows."""
    need, found = service.rate_per_second, [0.0] * len(most)
    spare = 0.0
    for at in sorted(range(len(most)), key=lambda at: -accuracy[at]):
        over = accuracy[at] - service.mean_accuracy
        rate = min(most[at], need) if over >= 0 else min(most[at], need, spare / -over)
        found[at], need, spare = rate, need - rate, spare + rate * over
    return found


def _instance(name: str, seat: _WideSeat, rate: float) -> Instance:
    shape, first = seat.shape, seat.gpus[0]
    identity = seat.kept.id if seat.kept and seat.kept.id else f"{name}/{seat.node}-{first}-{shape.degree}"
    made = Instance(
        identity, name, seat.node, first, shape.variant, shape.batch, 0.0, 100, shape.memory_gib, shape.clock_mhz,
        rate, 0.0, shape.ttft_ms, seat.gpus if len(seat.gpus) > 1 else (), shape.tpot_ms,
    )  # fmt: skip
    kept = seat.kept
    if kept and abs(kept.rate_per_second - rate) <= 1e-9 * max(1.0, rate):
        return replace(made, rate_per_second=kept.rate_per_second)
    return made
