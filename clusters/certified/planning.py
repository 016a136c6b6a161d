"""Asks the planner what the estate could do with, for workloads whose models have profiles, and reads its plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from app.manifests.prices import NANO
from clusters.bill import Bill
from clusters.certified.posing import KnownProfiles, PosedProblem, find_unprofiled, pose_problem
from clusters.certified.savings import CertifiedSavings, PlannedWorkload
from clusters.estate import Estate, WorkloadName
from clusters.measured import MeasuredLoads
from clusters.promises import WorkloadPromise
from clusters.savings.needs import LoadNeed
from clusters.sharing.rooms import SharedRooms, keep_for_loss, open_rooms
from solvers.planning.plan import Plan
from solvers.planning.solve import SolveBudget, find

BOUND_ROUNDING = 1e-6  # of a bound, so that a limit is never too low by rounding


def certify_savings(
    estate: Estate, bill: Bill, measured: MeasuredLoads, needs: Mapping[WorkloadName, LoadNeed | str],
    promises: Mapping[WorkloadName, WorkloadPromise], known: KnownProfiles, budget: SolveBudget, *,
    alone: bool = False,
) -> CertifiedSavings:  # fmt: skip
    """Returns what the plan saves. What it could not serve stays as it is, and the rest is planned again."""
    excluded = find_unprofiled(estate, promises, known)
    while True:
        rooms = open_rooms(estate, bill, measured, needs, excluded)
        posed = pose_problem(estate, rooms, measured, promises, known)
        if not posed.problem.services:
            return CertifiedSavings(0, None, (), (), rooms.staying, "")
        plan = find(posed.problem, budget, alone=alone).plan
        if not plan.unserved:
            return _read_plan(rooms, posed, plan)
        for left_out in plan.unserved:
            excluded[posed.workloads[left_out.service]] = f"the plan does not serve it: {left_out.reason}"


def _read_plan(rooms: SharedRooms, posed: PosedProblem, plan: Plan) -> CertifiedSavings:
    used: dict[str, set[int]] = defaultdict(set)
    for instance in plan.instances:
        used[instance.node].add(instance.gpu)
    counts = {name: len(gpus) for name, gpus in used.items()}
    kept: set[str] = set()
    for kind in rooms.kinds:
        here = {node.name for node in kind.nodes}
        kept |= keep_for_loss(kind, {name: count for name, count in counts.items() if name in here})
    nodes = [node for kind in rooms.kinds for node in kind.nodes]
    gone = [node for node in nodes if node.name not in kept]
    saved = sum(node.nano_per_hour for node in gone)
    certificate, limit = plan.certificate, None
    if certificate and certificate.bound is not None:
        most = sum(node.nano_per_hour for node in nodes)
        limit = max(saved, most - int(certificate.bound * (1 - BOUND_ROUNDING) * NANO))
    return CertifiedSavings(
        nano_per_hour=saved,
        limit_nano_per_hour=limit,
        nodes=tuple(node.name for node in gone),
        workloads=tuple(_list_planned(posed, plan)),
        staying=rooms.staying,
        method=certificate.method if certificate else "",
    )


def _list_planned(posed: PosedProblem, plan: Plan) -> list[PlannedWorkload]:
    found = []
    for service, workload in posed.workloads.items():
        own = [instance for instance in plan.instances if instance.service == service]
        found.append(
            PlannedWorkload(
                workload, len(own), len({instance.place for instance in own}),
                sum(instance.sm_percent for instance in own) / 100, posed.problem.services[service].rate_per_second,
            )
        )  # fmt: skip
    return found
