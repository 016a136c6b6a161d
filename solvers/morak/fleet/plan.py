"""Plans a fleet as Morak does: GPUs are split once, by the exact search over model, SM%, batch and clock (K1, K4).

What runs keeps its SM%; batches and clocks follow the load (K2). Instances are added where they carry most of what is
short, and a GPU is divided again where what runs draws more watts than it may be planned with by now, as Algorithm 1
does after three failures: a node's request for another partition lowers that cap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from solvers.morak.fleet.board import MorakBoard
from solvers.morak.fleet.growing import grow
from solvers.morak.fleet.items import MorakItems, price_weight
from solvers.morak.fleet.tuning import HEADROOM, spare, tune
from solvers.planning.carried import admitted, carry, is_admitted
from solvers.planning.fleet.offers import why_no_shape
from solvers.planning.plan import Unserved
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Instance, Knowledge, Place, PlacedJob, Problem

SETS_PER_WORK = 1_000  # residents of a GPU that the search may examine, for each unit of work
FEW_GPUS, LEAST_SETS_PER_WORK = 16, 100  # each of more GPUs is searched less, as a fleet is in many rounds


def plan(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns Morak's next plan; throughput above a service's rate is worth nothing.

    Where watts are short, jobs that may be stopped leave theirs to the services.
    """
    jobs = problem.state.jobs if problem.state else ()
    found = _plan_beside(problem, budget, jobs)
    staying = tuple(job for job in jobs if not problem.jobs[job.job].is_preemptible)
    if problem.policy.power_budget_w is None or not found.unserved or len(staying) == len(jobs):
        return found
    alone = _plan_beside(problem, budget, staying)
    return min(found, alone, key=lambda draft: _missing(problem, draft))


def _missing(problem: Problem, draft: PlannerDraft) -> float:
    """Returns what the draft leaves unserved, as the judge prices it."""
    services = problem.services
    return sum(price_weight(services[entry.service]) * entry.rate_per_second for entry in draft.unserved)


def _plan_beside(problem: Problem, budget: PlannerBudget, jobs: Sequence[PlacedJob]) -> PlannerDraft:
    """Returns the plan beside these jobs."""
    state = problem.state
    running = [line for line in (state.running if state else ()) if is_admitted(problem, line)]
    within_caps = {line.id for line in admitted(problem, running, jobs)}
    again = {line.place for line in running if line.id not in within_caps}
    gpus = sum(node.gpu_count for node in problem.nodes.values())
    sets = max(1, budget.work) * max(LEAST_SETS_PER_WORK, SETS_PER_WORK * FEW_GPUS // max(FEW_GPUS, gpus))
    kept = _drop_spare(problem, [line for line in running if line.place not in again], jobs, sets)
    board = MorakBoard(problem, kept, jobs, sets)
    is_kept = tune(board)
    reused: dict[tuple[Place, str, str], list[str]] = defaultdict(list)
    for line in running:
        if line.place in again:
            reused[line.place, line.service, line.variant].append(line.id)
    for place in again:
        board.gpus[place].was_used = True
    added = grow(board, reused)
    instances, rests = carry(problem, board.seats, jobs)
    while problem.policy.power_budget_w is not None and len(instances) < len(board.seats):
        board.keep({line.id for line in instances})  # a job without them has the highest clock again
        tune(board)
        instances, rests = carry(problem, board.seats, jobs)
    unserved = tuple(Unserved(name, rate, _why(board, name)) for name, rate in sorted(rests.items()))
    words = [f"exact search of splits, batches and clocks: {_count(added, 'instance')} added"]
    words += [f"{_count(len(again), 'GPU')} divided again"] if again else []
    words += ["clocks and batches kept"] if is_kept and not added else []
    return PlannerDraft(tuple(instances), unserved, "; ".join(words))


def _drop_spare(problem: Problem, running: Sequence[Instance], jobs: Sequence[PlacedJob], sets: int) -> list[Instance]:
    """Returns the instances that run without those whose service carries its rate and a quarter more without them."""
    if not running:
        return []
    gone = spare(MorakBoard(problem, running, jobs, sets))
    return [line for line in running if line.id not in gone]


def _why(board: MorakBoard, name: str) -> str:
    """Returns why a part of a service's rate is unserved."""
    pools: Mapping[int, MorakItems] = {id(gpu.items): gpu.items for gpu in board.gpus.values()}
    shares = [item for items in pools.values() for item in items.shares.get(name, ())]
    if not shares:
        return why_no_shape(board.problem)
    least = min(item.sm_percent for item in shares)
    able = [place for place, gpu in board.gpus.items() if name in gpu.items.shares]
    free = max(map(board.rooms.spare_percent, able), default=0)
    if free < least:
        return f"an instance needs {least} % of the SMs; at most {free} % of a GPU are free"
    refused: set[Place] = {place for place, gpu in board.gpus.items() if name in gpu.refused}
    if refused:
        return "no GPU has CPU cores, host memory and its tenant's limit for another instance at once"
    return f"no clock of a GPU keeps its SLO and {HEADROOM:g} times its rate within maxW, powerBudgetW and memory"


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
