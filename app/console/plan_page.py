"""Words the page of a plan: what may be done with it, how far its rollout is, and what was done to it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.api.plans.plan_actions import ACTED_UPON, EVER_IN_FORCE, MOVES
from app.api.plans.plan_wire import PlanFactsWire
from app.console.wording import count

LABELS = {
    "approve": "Approve", "reject": "Reject", "pause": "Pause", "resume": "Resume", "abort": "Abort",
}  # fmt: skip
CONFIRMED = ("approve", "reject")  # a page asks first; other actions are undone by another one
EFFECTS = {
    "approve": "Its rollout begins.",
    "reject": "It is discarded, and nothing changes.",
    "pause": "No new step of the rollout begins, and no other plan takes its place.",
    "resume": "The rollout continues where it is.",
    "abort": "The rollout ends where it is: nodes stay as they are now.",
    "rollback": "The leader judges it by today's rates and makes a new plan of it; then plans wait for approval.",
}
DONE = {
    "approve": "You approved plan {plan}. Its rollout begins.",
    "reject": "You rejected plan {plan}. Nothing changes.",
    "pause": "You paused the rollout of plan {plan}. No new step begins until it is resumed.",
    "resume": "You resumed the rollout of plan {plan}.",
    "abort": "You aborted the rollout of plan {plan}. Nodes stay as they are now.",
    "rollback": (
        "You asked to go back from plan {plan}. The leader judges the earlier plan by today's rates and makes a new "
        "plan of it; if it breaks a rule, an event below says which. After that, plans wait for approval."
    ),
    "resume-fleet": "You resumed the fleet: plans follow the policy's mode again.",
}
PROGRESS = (("pending", "under way"), ("leaving", "on their way out"), ("canaries", "on trial"))


@dataclass(frozen=True, slots=True)
class PlanForm:
    """A button of the plan's page: where it posts to, what it says and does, and which plan a rollback leads to."""

    verb: str
    action: str
    label: str
    effect: str
    to: int = 0

    @property
    def is_confirmed(self) -> bool:
        """Returns whether a page of its own asks first."""
        return self.verb in CONFIRMED


def plan_forms(head: PlanFactsWire, in_force: int, is_base_kept: bool) -> list[PlanForm]:
    """Returns what an operator may do with the plan in its state."""
    generation, state = head["generation"], head["state"]
    forms = [
        PlanForm(move.verb, f"/plans/{generation}/{move.verb}", LABELS[move.verb], EFFECTS[move.verb])
        for move in MOVES
        if state in move.froms and (state not in ACTED_UPON or generation == in_force)
    ]
    if "rollback" in (head.get("asked") or ()):
        return forms
    target = 0
    if generation == in_force and state in ACTED_UPON and is_base_kept:
        target = head["base"] or 0
    elif generation < in_force and state in EVER_IN_FORCE:
        target = generation
    if target:
        label = f"Roll back to plan {target}"
        forms.append(PlanForm("rollback", f"/plans/{in_force}/rollback", label, EFFECTS["rollback"], target))
    return forms


def said(done: str, generation: int) -> str:
    """Returns what the operator has just done; empty for an unknown word."""
    return DONE[done].format(plan=generation) if done in DONE else ""


def rollout_lines(head: PlanFactsWire) -> list[str]:
    """Returns how far the rollout is, and what it leaves out."""
    rollout = head.get("rollout") or {}
    if not rollout:
        return []
    lines = [f"{count(rollout.get('steps', 0), 'step', 'steps')} made"]
    lines += [
        f"{count(len(rollout[name]), 'instance', 'instances')} {words}" for name, words in PROGRESS if rollout.get(name)
    ]
    for name, words in (("left_out", "left out, as a step failed"), ("freed", "left out, as they blocked each other")):
        if rollout.get(name):
            lines.append(f"{words}: {', '.join(map(str, rollout[name][:10]))}")
    return lines


def spell_owners(names: Sequence[str], jobs: Mapping[str, bool]) -> str:
    """Returns `3 services, 1 job`: how many of each a plan changes; `jobs` knows those that are still declared."""
    kinds = (
        (sum(jobs.get(name) is False for name in names), "service", "services"),
        (sum(jobs.get(name) is True for name in names), "job", "jobs"),
        (sum(name not in jobs for name in names), "deleted since", "deleted since"),
    )
    return ", ".join(count(*kind) for kind in kinds if kind[0])
