"""Accepts today's answers: shows what changed, and refuses what is worse unless a reason is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from tests.net.answers import Acceptance, Answer, find_origin
from tests.net.comparing import ANY_SHARE, SAME_SHARE, add_up, find_broken, find_changed, find_sum_faults
from tests.net.corpus import Corpus


@dataclass(frozen=True, slots=True)
class Accepted:
    """What accepting would change, and whether it may."""

    lines: tuple[str, ...]  # for a person
    acceptance: Acceptance
    worse: tuple[str, ...]  # sums, and rules that were not broken before: they want a reason


def weigh(recorded: Mapping[str, Answer], answers: Iterable[Answer], reason: str) -> Accepted:
    """Compares answers with the recorded ones of the same names."""
    now = {answer.name: answer for answer in answers}
    pairs = [(recorded[name], answer) for name, answer in sorted(now.items()) if name in recorded]
    lines = [f"{then.name}: {line}" for then, after in pairs for line in list_changes(then, after)]
    changed = tuple(then.name for then, after in pairs if list_changes(then, after))
    before, after = [then for then, _ in pairs], [new for _, new in pairs]
    broken = [f"{then.name}: {fault}" for then, new in pairs for fault in find_broken(then, new)]
    worse = [f"in sum: {fault}" for fault in find_sum_faults(before, after, shares=ANY_SHARE)]
    new = [f"{name}: new" for name in now if name not in recorded]
    acceptance = Acceptance(reason, changed, _sums(before), _sums(after))
    return Accepted((*lines, *new), acceptance, (*broken, *worse))


def list_changes(then: Answer, now: Answer) -> list[str]:
    """Returns how a decision and its bound differ; nothing where both are as recorded."""
    found = find_changed(then, now)
    lines = [found] if found else []
    if then.bound != now.bound and abs((then.bound or 0.0) - (now.bound or 0.0)) > SAME_SHARE * (then.bound or 1.0):
        lines.append(f"bound {now.bound}, recorded {then.bound}")
    return lines


def _sums(answers: Iterable[Answer]) -> dict[str, float]:
    """Returns the sums by which a change is weighed."""
    found = add_up(answers)
    return {
        "cost": found.cost or 0.0,
        "unserved": found.unserved,
        "bound": found.bound or 0.0,
        "handOvers": found.hand_overs,
    }


def accept(corpus: Corpus, answers: Iterable[Answer], reason: str) -> Accepted:
    """Keeps today's answers, if nothing is worse or a reason is given; otherwise changes nothing."""
    recorded, found = corpus.read_answers(), list(answers)
    weighed = weigh(recorded, found, reason)
    if weighed.worse and not reason:
        return weighed
    corpus.write_answers((recorded | {answer.name: answer for answer in found}).values())
    head = replace(corpus.read_head(), origin=find_origin())
    if weighed.acceptance.changed:
        head = replace(head, accepted=(*head.accepted, weighed.acceptance))
    corpus.write_head(head)
    return weighed
