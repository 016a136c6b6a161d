"""Keeps which rules each part of a plan breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from solvers.planning.judge.verdict import Violation

Part = tuple[str, object]  # a scope, and what of it: ("gpu", place), ("service", name)


Rules = Sequence[Callable[..., str | None]]


def is_broken(rules: Rules, *about: object) -> bool:
    """Returns whether any of the rules is broken here."""
    for rule in rules:  # noqa: SIM110 (asked thousands of times, and a generator takes longer than most rules)
        if rule(*about) is not None:
            return True
    return False


class Violations:
    """The violations found so far, by part."""

    def __init__(self) -> None:
        self.by_part: dict[Part, list[Violation]] = {}

    def __bool__(self) -> bool:
        return bool(self.by_part)

    def __contains__(self, part: Part) -> bool:
        return part in self.by_part

    def all(self) -> list[Violation]:
        return [violation for violations in self.by_part.values() for violation in violations]

    def forget(self, part: Part) -> None:
        self.by_part.pop(part, None)

    def note(self, part: Part, where: Callable[[], str] | str, rules: Rules, *about: object) -> None:
        """Keeps which of the rules are broken here; `where` is called only if there are any."""
        if not is_broken(rules, *about):
            if self.by_part:
                self.by_part.pop(part, None)
            return
        at = where if isinstance(where, str) else where()
        sentences = [(rule.__name__, rule(*about)) for rule in rules]
        self.by_part[part] = [Violation(at, rule, sentence) for rule, sentence in sentences if sentence is not None]
