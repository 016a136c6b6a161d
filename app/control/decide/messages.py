"""Words a recorded decision: why it was made, its events, and the changes that it holds back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.control.domain.applied import list_applied, spell_applied
from app.control.domain.decision import Decision, HeldBackChange, PlanState, SolveOutcome
from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.snapshot import DeclaredObject, Snapshot
from app.control.formulate.causes import find_causes
from app.control.formulate.question import Question
from solvers.planning.plan import Unserved
from solvers.planning.plan_fields import CHANGE_VERBS, spell_changes

MOST_SPELLED = 5  # held-back changes, in a message
MOST_SHORT = 3  # services that shortfall capacity, in a message
MOST_DIGITS = 6  # of two rates that differ by little
APPLIED = {"Service": Reason.SERVICE_APPLIED, "Job": Reason.JOB_APPLIED}  # what alone of these kinds was changed
LEAST_SAVED = 0.005  # an hour; less is written as 0.00


def true_reason(reason: Reason, snapshot: Snapshot, answered: Sequence[DeclaredObject] = ()) -> Reason:
    """Returns what calls for the decision: the first plan is called for by the shortfall of one, and no later plan is.

    A new leader asks for a first plan, and what people do wakes the leader, before either knows what is in force.
    What they did is seen by what differs from the world of the last answer: `answered`, empty if there was none.
    """
    if not snapshot.target:
        return Reason.FIRST_PLAN if reason in (Reason.CYCLE, Reason.OPERATOR) else reason
    if reason is Reason.FLEET_APPLIED and answered:
        kinds = {item.kind for item in list_applied(answered, snapshot.declared)}
        return APPLIED[min(kinds)] if len(kinds) == 1 and kinds <= APPLIED.keys() else reason if kinds else Reason.CYCLE
    if reason is Reason.OPERATOR and any(snapshot.nodes[node].reclaimed_at for node in _list_used_nodes(snapshot)):
        return Reason.RECLAIM_NOTICE
    return Reason.CYCLE if reason is Reason.FIRST_PLAN else reason


def _list_used_nodes(snapshot: Snapshot) -> list[str]:
    return [node for node, wanted in snapshot.in_force.items() if wanted.instances and node in snapshot.nodes]


def explain_decisions(
    snapshot: Snapshot, question: Question, decisions: Sequence[Decision], answered: Sequence[DeclaredObject] = (),
    act: str = "",
) -> tuple[Decision, ...]:  # fmt: skip
    """Returns the decisions with their causes, and a message of what called for them, as far as that is known.

    `act` is what a person did just now.
    """
    causes = find_causes(snapshot, question)
    applied = spell_applied(list_applied(answered, snapshot.declared)) if answered else ""
    closed = "; ".join(list(dict.fromkeys(causes.closed.values()))[:MOST_SPELLED])

    def explain(decision: Decision) -> str:
        match decision.reason:
            case Reason.CYCLE:
                return _reason_of_cycle(question, decision)
            case Reason.FLEET_APPLIED | Reason.SERVICE_APPLIED | Reason.JOB_APPLIED:
                known = applied
            case Reason.OPERATOR | Reason.RECLAIM_NOTICE:
                known = closed or act
            case _:
                known = ""
        return "; ".join(filter(None, (known, decision.message)))

    return tuple(replace(decision, causes=causes, message=explain(decision)) for decision in decisions)


def _reason_of_cycle(question: Question, decision: Decision) -> str:
    short = _spell_shortfalls(question)
    if short or decision.message or decision.verdict is None:
        return "; ".join(filter(None, (short, decision.message)))
    saved = question.verdict.cost.total - decision.verdict.cost.total
    return f"it saves {saved:.2f} an hour" if saved >= LEAST_SAVED else ""


def _spell_shortfalls(question: Question) -> str:
    """Returns the largest shortfalls of the plan in force, or the first rule that it breaks by now."""
    shortfalls = sorted(question.plan_in_force.unserved, key=lambda each: (-each.rate_per_second, each.service))
    if not shortfalls:
        broken = question.verdict.violations
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        return f"the plan in force breaks a rule by now: {broken[0]}{more}" if broken else ""
    more = f" and {len(shortfalls) - MOST_SHORT} more" if len(shortfalls) > MOST_SHORT else ""
    return "; ".join(_spell_shortfall(question, shortfall) for shortfall in shortfalls[:MOST_SHORT]) + more


def _spell_shortfall(question: Question, shortfall: Unserved) -> str:
    expected = question.problem.services[shortfall.service].rate_per_second
    planned = expected - shortfall.rate_per_second
    digits = next((some for some in range(1, MOST_DIGITS) if f"{expected:.{some}f}" != f"{planned:.{some}f}"), 1)
    asked = f"{expected:.{digits}f} requests a second are expected"
    if float(f"{planned:.{digits}f}") == 0:
        return f"{shortfall.service}: {asked}, and no instance that stays serves them"
    return f"{shortfall.service}: {asked}, {planned:.{digits}f} were planned for"


def spell_held_back(held: Sequence[HeldBackChange]) -> str:
    """Returns the first changes that are held back, in words."""
    first = held[:MOST_SPELLED]
    return "; ".join(f"{change.service}: {change.message}" if change.service else change.message for change in first)


def list_events(decision: Decision, parts: Sequence[Decision]) -> list[NewEvent]:
    """Returns the events of a decision and its parts."""
    changes = decision.plan.changes
    message = spell_changes({name: getattr(changes, name) for name in CHANGE_VERBS})
    message = message or "only the shares of requests change"
    planned = event_of(Reason.PLANNED, message, kind="Plan")
    if decision.failure:
        told = f"{decision.message}: {message}"
        is_expected = decision.failure is SolveOutcome.COMPILING  # once on each machine
        planned = event_of(Reason.FALLBACK_PLANNED, told, kind="Plan", severity="info" if is_expected else None)
    if any(part.state is PlanState.PROPOSED for part in parts):
        return [planned, event_of(Reason.PLAN_PROPOSED, kind="Plan")]
    return [planned]
