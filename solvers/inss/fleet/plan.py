"""Plans a fleet as InSS does: other batches as long as they are enough, else placement and SM% as one knapsack (I3).

The paper trains SAC-D for the second layer, which maximises reward (3). Here the same reward is maximised by search,
with a bound: exactly up to eight parts, by a heuristic beyond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from solvers.inss.batching import BatchedModel, Batches, BatchingProblem, BatchOption, decide_batches
from solvers.inss.batching.problem import MOST_BATCH
from solvers.inss.fleet.parts import FleetLayout
from solvers.inss.fleet.promises import slowest_ms
from solvers.inss.fleet.seats import seat_answer
from solvers.inss.throughput import serve
from solvers.planning.carried import admitted, carry
from solvers.planning.fleet.grids import BatchRate
from solvers.planning.fleet.offers import read_offers, why_no_shape
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge import Resident
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import slow_down
from solvers.planning.plan import Unserved
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Instance, Knowledge, PlacedJob, Problem
from solvers.proof import Proof

MOST_ROUNDS = 3  # of dividing services into more parts
WORTHWHILE_SHARE = 0.02  # of all rates, normalised: a new placement must serve so much more
NO_ROOM = "the most throughput within InSS's constraints leaves this part of its rate out"


@dataclass(frozen=True, slots=True)
class CarriedFleet:
    """Instances with their rates, the rests of services' rates that none carries, and how they were found."""

    instances: list[Instance]
    rests: Mapping[str, float]
    method: str
    reasons: Mapping[str, str]

    def missing_share(self, problem: Problem) -> float:
        """Returns the unserved shares of all rates, added up."""
        return sum(rest / problem.services[name].rate_per_second for name, rest in self.rests.items())


def plan(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns InSS's next plan; it depends on what runs and on the rates alone."""
    state = problem.state
    jobs = state.jobs if state else ()
    running = admitted(problem, state.running, state.jobs) if state else []
    rooms = FleetRooms(problem, (), jobs)  # what jobs leave
    carried = _choose_batches(problem, running, jobs, rooms)
    if carried.rests:
        placed = _place(problem, running, jobs, rooms)
        if not running or placed.missing_share(problem) < carried.missing_share(problem) - WORTHWHILE_SHARE:
            carried = placed
    unserved = tuple(
        Unserved(name, rate, carried.reasons.get(name, NO_ROOM)) for name, rate in sorted(carried.rests.items())
    )
    return PlannerDraft(tuple(carried.instances), unserved, carried.method)


def _choose_batches(
    problem: Problem, running: Sequence[Instance], jobs: Sequence[PlacedJob], rooms: FleetRooms
) -> CarriedFleet:  # fmt: skip
    """Returns case 1: everything stays where it is, at the batches of most throughput."""
    decided = choose_batches(problem, running, jobs, rooms)
    instances, rests = carry(problem, decided.seats, jobs)
    method = f"batches by BDA on {decided.bda} GPUs, exact on {decided.exact}"
    return CarriedFleet(instances, rests, method, decided.reasons)


def _place(
    problem: Problem, running: Sequence[Instance], jobs: Sequence[PlacedJob], rooms: FleetRooms
) -> CarriedFleet:  # fmt: skip
    """Returns case 2: placement, SM% and batches of most reward, with more parts for what stays short."""
    layout = FleetLayout(rooms)
    parts = {name: layout.least_parts(name) for name in layout.speeds if layout.most_parts(name)}
    best: CarriedFleet | None = None
    for _ in range(MOST_ROUNDS):
        outcome = serve(layout.pose_throughput(parts))
        seats, without = seat_answer(layout, outcome.answer, running)
        instances, rests = carry(problem, choose_batches(problem, seats, jobs, rooms).seats, jobs)
        reasons = {name: why_no_shape(problem) for name in problem.services if name not in parts}
        reasons |= _why(layout, without, seats, jobs)
        found = CarriedFleet(instances, rests, _method(outcome.proof), reasons)
        if best is None or found.missing_share(problem) < best.missing_share(problem):
            best = found
        more = {name for name in rests if name in parts and parts[name] < layout.most_parts(name)}
        if not more:
            break
        parts = {name: count + (name in more) for name, count in parts.items()}
    assert best
    return best


def _method(proof: Proof) -> str:
    most = "" if proof.bound is None else f" of at most {proof.bound:.4g}"
    return f"placement and SM% by {proof.method}, reward {proof.value:.4g}{most}"


def _why(
    layout: FleetLayout, without: Sequence[str], seats: Sequence[Instance], jobs: Sequence[PlacedJob]
) -> dict[str, str]:
    """Names the limit that kept a part of each of these services out."""
    if not without:
        return {}
    rooms = FleetRooms(layout.problem, seats, jobs)
    found = {}
    for name in without:
        service = layout.problem.services[name]
        if shapes := read_offers(layout.problem).find_whole_shapes(service, rooms.pools):
            found[name] = rooms.why_not(shapes[0], service)
    return found


SLACK_SHARE = 1e-6  # of a rate


@dataclass(frozen=True, slots=True)
class RebatchedFleet:
    """The instances with their batches. Where a GPU has no valid batches, its instances keep theirs."""

    seats: tuple[Instance, ...]
    reasons: Mapping[str, str]  # why a GPU has none, by service
    bda: int  # GPUs whose batches are BDA's
    exact: int  # GPUs on which the exact answer serves more


def choose_batches(
    problem: Problem, seats: Sequence[Instance], jobs: Iterable[PlacedJob], rooms: FleetRooms
) -> RebatchedFleet:  # fmt: skip
    """Decides the batches of each GPU for the rates of its instances; `rooms` have what jobs leave of it."""
    gpus = list(gpus_with(problem, seats, jobs).values())
    for gpu in gpus:
        slow_down(gpu, problem.policy)
    options = {line.instance.id: _options(problem, line) for gpu in gpus for line in gpu.residents}
    rates = _rates(problem, [line for gpu in gpus for line in gpu.residents], options)
    chosen: dict[str, Instance] = {}
    reasons: dict[str, str] = {}
    counts = {"BDA": 0, "exact": 0}
    for gpu in gpus:
        if not gpu.residents:
            continue
        models = tuple(_model(line, options[line.instance.id], rates[line.instance.id]) for line in gpu.residents)
        found = decide_batches(BatchingProblem(rooms.spare_gib((gpu.node.name, gpu.index)), models))
        if isinstance(found, Batches):
            counts[found.proof.method] += 1
        else:
            reasons |= dict.fromkeys((line.instance.service for line in gpu.residents), found.reason)
        for line in gpu.residents:
            seat = line.instance
            chosen[seat.id] = seat
            if isinstance(found, Batches) and line.profile:
                batch = sorted(options[seat.id])[found.batches[seat.id] - 1]
                chosen[seat.id] = replace(seat, batch=batch, memory_gib=line.profile.memory_gib[batch])
    return RebatchedFleet(tuple(chosen[seat.id] for seat in seats), reasons, counts["BDA"], counts["exact"])


def _options(problem: Problem, line: Resident) -> dict[int, BatchOption]:
    """Returns latency, throughput and memory of each batch beside the same neighbours."""
    policy, service, profile, alone_ms = problem.policy, line.service, line.profile, line.alone_ms
    assert service
    assert profile
    assert alone_ms
    slower = (line.exec_ms or alone_ms) / alone_ms
    least, found = min(profile.latency_ms), {}
    for batch in sorted(profile.latency_ms)[:MOST_BATCH]:
        at = BatchRate.of(policy, service, profile, batch, line.instance.sm_percent, slower)
        latency_ms = slowest_ms(service, batch, at.exec_ms * (1 + policy.exec_margin), least, policy)
        found[batch] = BatchOption(min(latency_ms, 1e12), at.rate_per_second, at.memory_gib)
    return found


def _rates(
    problem: Problem, lines: Iterable[Resident], options: Mapping[str, Mapping[int, BatchOption]]
) -> dict[str, float]:
    """Divides each service's rate by what its instances carry at their best batch."""
    most: dict[str, dict[str, float]] = defaultdict(dict)
    for line in lines:
        best = max(option.throughput_per_second for option in options[line.instance.id].values())
        most[line.instance.service][line.instance.id] = best
    found = {}
    for name, by_seat in most.items():
        total = sum(by_seat.values())
        for seat, best in by_seat.items():
            found[seat] = problem.services[name].rate_per_second * (best / total if total else 1 / len(by_seat))
    return found


def _model(line: Resident, options: Mapping[int, BatchOption], rate: float) -> BatchedModel:
    service, batches = line.service, sorted(options)
    assert service
    position = batches.index(line.instance.batch) + 1 if line.instance.batch in batches else 1
    ordered = tuple(options[batch] for batch in batches)
    return BatchedModel(line.instance.id, service.slo_ms, max(rate * (1 - SLACK_SHARE), 1e-9), ordered, position)
