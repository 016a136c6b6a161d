"""What stands of the newest plan for replicas in the next: the same decision keeps what a person said of it.

A hold suspends a decision. When it ends, and the same is decided of the same object and specification, the decision
goes on as it was: nobody is asked twice. So it is when the cluster refuses a write: it stands, and is tried again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime

from app.store.plans.scale_rows import ScaleDraft, ScalePlan, ScaleRow, ScaleState

# What stands for one object, specification and number, until something else is decided.
STANDING = (ScaleState.PROPOSED, ScaleState.APPROVED, ScaleState.REJECTED, ScaleState.REFUSED)
VERDICT = ("since", "decided_by", "decided_at", "outcome", "settled_at")  # of it


def differs_from(newest: ScalePlan, drafts: Sequence[ScaleDraft], writing: Sequence[ScaleRow]) -> bool:
    """Returns whether anything would stand otherwise in a new plan, but for the figures in its sentences."""
    in_doubt = {row.target: row for row in writing}
    before = {row.target: row for row in newest.rows}
    if before.keys() != {draft.target for draft in drafts}:
        return True
    for draft in drafts:
        row = before[draft.target]
        if row.state is ScaleState.WRITING:
            continue
        if row.state is ScaleState.WRITTEN:
            row = replace(row, replicas=row.wanted, state=ScaleState.STEADY)
        if not _is_same(row, _complete(draft, row, in_doubt.get(draft.target))):
            return True
    return False


def _is_same(row: ScaleRow, draft: ScaleDraft) -> bool:
    if row.state in (ScaleState.WRITTEN, ScaleState.WRITING, ScaleState.OVERTAKEN):
        return False
    if (row.state in STANDING or row.resumes) and row.object_generation != draft.object_generation:
        return False  # with another specification a replica may be and cost anything else
    holds = [(each.is_blind, each.hold if not each.is_blind else "") for each in (row, draft)]
    return holds[0] == holds[1] and _decides_alike(row, draft)


def _decides_alike(row: ScaleRow, draft: ScaleDraft) -> bool:
    kept = (row.uid, row.service, row.mode, row.replicas, row.wanted)
    return kept == (draft.uid, draft.service, draft.mode, draft.replicas, draft.wanted)


def _complete(draft: ScaleDraft, before: ScaleRow | None, doubt: ScaleRow | None) -> ScaleDraft:
    """Returns the draft with the number that stands where another cannot be decided now.

    Where a write has no known outcome, nothing else is wanted until it has. Where nothing could be read, what was
    decided on the same object still counts.
    """
    if doubt is not None:
        hold = f"plan {doubt.generation} writes {doubt.wanted} at resource version {doubt.resource_version}"
        return replace(draft, wanted=doubt.wanted, hold=f"{hold}: no answer yet", is_blind=False)
    if draft.is_blind and before and _decides_alike(before, stood := replace(draft, wanted=before.wanted)):
        return stood
    return draft


def make_row(
    draft: ScaleDraft, before: ScaleRow | None, doubt: ScaleRow | None, generation: int, now: datetime
) -> Mapping[str, object]:
    """Returns the columns of a new row. What a person said of the same decision still counts, also after a hold."""
    draft = _complete(draft, before, doubt)
    columns = {**asdict(draft), **draft.target._asdict(), "tries": 0, "retry_at": None}
    del columns["target"]
    if before:  # who refuses one number may refuse the next
        columns |= {"tries": before.tries, "retry_at": before.retry_at}
    if before and _is_same(before, draft):
        kept = ("state", "resumes", *VERDICT)
        return {**columns, **{name: getattr(before, name) for name in kept}}
    earlier = doubt or before
    if earlier and (standing := _find_standing(earlier, draft)):
        verdict = {name: getattr(earlier, name) for name in VERDICT}
        state, resumes = (ScaleState.HELD, standing) if draft.hold else (standing, "")
        return {**columns, **verdict, "state": state, "resumes": resumes}
    state = _begin_state(draft)
    by, at = ("auto", now) if state is ScaleState.APPROVED else ("", None)
    verdict = {"since": generation, "decided_by": by, "decided_at": at, "outcome": "", "settled_at": None}
    return {**columns, **verdict, "state": state, "resumes": ""}


def _find_standing(row: ScaleRow, draft: ScaleDraft) -> ScaleState | None:
    """Returns the state in which a decision stands, whatever holds it; None if the draft decides something else."""
    if row.object_generation != draft.object_generation or not _decides_alike(row, draft):
        return None
    if row.state is ScaleState.WRITING:
        return ScaleState.APPROVED
    state = ScaleState(row.resumes) if row.resumes else row.state
    return state if state in STANDING else None


def _begin_state(draft: ScaleDraft) -> ScaleState:
    if draft.hold:
        return ScaleState.HELD
    if draft.replicas is None or draft.wanted is None or draft.wanted == draft.replicas:
        return ScaleState.STEADY
    modes = {"advisory": ScaleState.ADVISED, "approve": ScaleState.PROPOSED, "auto": ScaleState.APPROVED}
    return modes[draft.mode]
