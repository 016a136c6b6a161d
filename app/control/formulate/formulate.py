"""Formulates the planner's question: the problem of this moment, with tenants' rules and the jobs to place now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from app.control.domain.policy import policy_spec
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.formulate.objective import intensity_since
from app.control.formulate.pose import pose
from app.control.formulate.question import Question
from app.control.formulate.tenants import apply_tenant_rules, budget_accounts, terms_of
from app.control.jobs.queue import queue_jobs

MOST_KEPT = 4  # questions: of the whole fleet and of one with GPUs closed to it, each before and after a decision


@dataclass(frozen=True, slots=True)
class _Formulated:
    """A snapshot, the question that was formulated from it last, and the tenants over their budgets then."""

    snapshot: Snapshot
    overspent: frozenset[str]
    question: Question

    def is_of(self, snapshot: Snapshot, overspent: frozenset[str]) -> bool:
        """Returns whether a question about this snapshot differs by its time alone, where neither has jobs."""
        known = self.snapshot
        return (
            known.declared is snapshot.declared  # comparing thousands of manifests would cost more than it saves
            and overspent == self.overspent
            and known.expected.keys() == snapshot.expected.keys()
            and all(
                _select_planned(load) == _select_planned(snapshot.expected[name])
                for name, load in known.expected.items()
            )
            and known.corrections == snapshot.corrections
            and known.nodes == snapshot.nodes
            and _intensity_since(known) == _intensity_since(snapshot)
            and (known.in_force is snapshot.in_force or known.in_force == snapshot.in_force)
        )


class RepeatedQuestions:
    """Keeps the last questions. Safe for several threads: at worst, a question is formulated again."""

    def __init__(self) -> None:
        self._known: tuple[_Formulated, ...] = ()

    def formulate_once(self, snapshot: Snapshot, formulate: Callable[[Snapshot], Question]) -> Question:
        """Returns the question about the snapshot; formulates it only if it is not known.

        A question with jobs depends on the time through their deadlines and their turns, so it is not kept. The others
        depend on the snapshot's declared objects, nodes, plan in force, loads and corrections, and on money only
        through the tenants that have overspent: their budget's consequences begin there.
        """
        if any(item.kind == "Job" for item in snapshot.declared):
            return formulate(snapshot)
        overspent = _overspent(snapshot)
        known = next((entry for entry in self._known if entry.is_of(snapshot, overspent)), None)
        question = known.question.at(snapshot.at) if known else formulate(snapshot)
        others = tuple(entry for entry in self._known if entry is not known)
        self._known = (_Formulated(snapshot, overspent, question), *others)[:MOST_KEPT]
        return question


def _select_planned(load: ExpectedLoad) -> tuple[float, ...]:
    """Returns what a question takes from an expected load."""
    return load.rate_per_second, load.variation, load.input_mean, load.output_mean


def _intensity_since(snapshot: Snapshot) -> datetime | None:
    return intensity_since(policy_spec(snapshot.declared), snapshot.at)


def _overspent(snapshot: Snapshot) -> frozenset[str]:
    spent = {tenant: facts.spent for tenant, facts in snapshot.tenants.items()}
    accounts = budget_accounts(terms_of(snapshot.declared), spent, snapshot.at)
    return frozenset(tenant for tenant, account in accounts.items() if account.is_over)


_repeated = RepeatedQuestions()


def formulate(snapshot: Snapshot) -> Question:
    """Returns the question of this moment: tenants' rules applied, and only the jobs that may be placed now.

    A fleet of which nothing has changed has its last question again, with what was found out about it.
    """
    return _repeated.formulate_once(snapshot, _formulate)


def _formulate(snapshot: Snapshot) -> Question:
    queue = queue_jobs(snapshot)
    question = pose(snapshot, jobs=queue.units_left)
    problem = queue.weigh(apply_tenant_rules(question.problem, snapshot, question.pinned))
    return replace(question, problem=problem)
