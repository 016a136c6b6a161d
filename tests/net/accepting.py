"""Accepts today's answers: shows what changed, and refuses what is worse in sum unless a reason is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from tests.net.answers import Acceptance, Answer, find_origin
from tests.net.comparing import SAME_SHARE, add_up, find_changed
from tests.net.corpus import Corpus


@dataclass(frozen=True, slots=True)
class Accepted:
    """What accepting would change, and whether it may."""

    lines: tuple[str, ...]  # for a person
    acceptance: Acceptance
    worse: tuple[str, ...]  # sums

    @property
    def needs_reason(self) -> bool:
        return bool(self.worse)


def weigh(recorded: Mapping[str, Answer], answers: Iterable[Answer], reason: str) -> Accepted:
    """Compares answers with the recorded ones of the same names."""
    now = {answer.name: answer for answer in answers}
    pairs = [(recorded[name], answer) for name, answer in sorted(now.items()) if name in recorded]
    lines = [f"{then.name}: {line}" for then, after in pairs for line in list_changes(then, after)]
    changed = tuple(then.name for then, after in pairs if list_changes(then, after))
    before, after = _sums(then for then, _ in pairs), _sums(new for _, new in pairs)
    worse = tuple(
        f"the sum of {name} rises from {before[name]:.9g} to {after[name]:.9g}"
        for name in ("cost", "unserved")
        if after[name] > before[name] * (1 + SAME_SHARE) + SAME_SHARE
    )
    new = [f"{name}: new" for name in now if name not in recorded]
    return Accepted((*lines, *new), Acceptance(reason, changed, before, after), worse)


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
    """Keeps today's answers, if they are no worse in sum or a reason is given; otherwise changes nothing."""
    recorded, found = corpus.answers(), list(answers)
    weighed = weigh(recorded, found, reason)
    if weighed.needs_reason and not reason:
        return weighed
    corpus.write_answers((recorded | {answer.name: answer for answer in found}).values())
    head = replace(corpus.head(), origin=find_origin())
    if weighed.acceptance.changed:
        head = replace(head, accepted=(*head.accepted, weighed.acceptance))
    corpus.write_head(head)
    return weighed
