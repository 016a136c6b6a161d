"""Judges offered assignments: takes new ones, refuses stale and contradictory ones; begins incarnations."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from enum import StrEnum

from agents.contract.assignments import Assignment
from agents.contract.reports import Answer
from agents.node.state_folder import AgentMemory, StateFolder

MOST_INCARNATIONS = 2**32  # a report has 32 bits for it
HIGHEST_INCARNATION = MOST_INCARNATIONS - 2**20  # taken from a clock or a server; leaves room for a million starts


class AssignmentVerdict(StrEnum):
    """The agent's verdict on an assignment."""

    TAKE = "take"
    SAME = "same"
    STALE = "stale"
    UNSOUND = "unsound"


def find_contradiction(node: str, offered: Assignment) -> str:
    """Returns what contradicts itself in an assignment, or is for another node; empty if nothing does."""
    if offered.node != node:
        return f"it is for node {offered.node}"
    for what, names in (
        ("instance", [instance.id for instance in (*offered.instances, *offered.swapped)]),
        ("GPU", [gpu.index for gpu in offered.gpus]),
    ):
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            return f"{what} {twice[0]} occurs twice"
    return ""


def judge_assignment(memory: AgentMemory, offered: Assignment) -> AssignmentVerdict:
    """Returns the verdict on an assignment; one of an older leader or plan is refused, however late it comes (I1)."""
    newest, version = (memory.epoch, memory.generation), (offered.epoch, offered.generation)
    if version < newest:
        return AssignmentVerdict.STALE
    is_same = version == newest and memory.assignment is not None
    return AssignmentVerdict.SAME if is_same else AssignmentVerdict.TAKE


def begin_incarnation(folder: StateFolder, now: datetime) -> AgentMemory:
    """Begins a new incarnation, on disk before the first report and above the old one even if the clock went back.

    A clock that is too far ahead for a report does not count. A number that no report can hold is begun again at 1: the
    control plane answers with the one to continue above.
    """
    memory = folder.memory()
    clock = int(now.timestamp())
    memory.incarnation = max(memory.incarnation + 1, clock if clock < HIGHEST_INCARNATION else 0)
    if memory.incarnation >= MOST_INCARNATIONS:
        memory.incarnation = 1
    folder.keep_memory(memory)
    return memory


def next_incarnation(own: int, sent: int, answer: Answer) -> int:
    """Returns the incarnation to continue with, after a report that was `sent` under one.

    It continues above the known one if our state was lost or a twin runs, or our reports are ignored. If ours is ahead
    of the server's clock, it was taken from a wrong clock, and continues below.
    """
    wanted = own
    if any(dropped.what == "state" and dropped.reason == "ahead" for dropped in answer.dropped):
        wanted = max(1, answer.incarnation + 1, int(answer.now.timestamp()))
    elif sent < answer.incarnation:
        wanted = answer.incarnation + 1
    return wanted if wanted <= HIGHEST_INCARNATION else own
