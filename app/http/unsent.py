"""Counts the answers that wait for their readers, and cuts the oldest of those who leave too much unread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from app.http import metrics

MOST_ANSWERS = 512  # of one caller, whose gateways may share a token: more would hold the connections of others


@dataclass(slots=True, eq=False)
class UnsentAnswer:
    """A computed answer of which the client has not taken everything."""

    holder: str
    bodies: dict[int, bytes]  # by identity
    cut: Callable[[], None]  # ends the sending
    unsent: dict[int, int] = field(default_factory=dict)  # bytes, by body

    def __post_init__(self) -> None:
        self.unsent = {key: len(body) for key, body in self.bodies.items()}


class CountedBodies:
    """Counts the unsent bytes of bodies. A body of several answers counts once: as much as is unsent of it in any."""

    def __init__(self) -> None:
        self.used = 0
        self._answers: dict[int, Counter[int]] = {}  # by body: how many answers have so many bytes of it unsent

    def change(self, body: int, before: int, after: int) -> None:
        """Notes that an answer has `after` unsent bytes of the body, no longer `before`; 0 is none."""
        answers = self._answers.setdefault(body, Counter())
        most = max(answers, default=0)
        if before:
            answers[before] -= 1
            if not answers[before]:
                del answers[before]
        if after:
            answers[after] += 1
        self.used += max(answers, default=0) - most
        if not answers:
            del self._answers[body]

    def sharers(self, body: int) -> int:
        """Returns how many answers have unsent bytes of the body."""
        return self._answers[body].total() if body in self._answers else 0


class UnsentAnswers:
    """The unsent answers of all callers.

    A caller over its share, or with too many answers, loses its oldest one; while all together are over the total, the
    caller that holds most loses its oldest. So slow readers harm themselves, and no answer is refused because of
    another. What many callers are sent, as all gateways are, is in memory once and counts once; each of them holds its
    part of it.
    """

    def __init__(self, total: int, share: int) -> None:
        self.total = total
        self.share = share
        self._all = CountedBodies()
        self._of_holder: dict[str, CountedBodies] = {}
        self._by_holder: dict[str, dict[UnsentAnswer, None]] = {}  # the oldest first

    @property
    def used(self) -> int:
        return self._all.used

    @contextmanager
    def hold(
        self, holder: str, bodies: Iterable[bytes], cut: Callable[[], None]
    ) -> Iterator[Callable[[bytes, int], None]]:
        """Counts an answer while it is sent; `cut` is called where it, or an older one, has to make room.

        Yields a function to call with a body and how many bytes of it have been sent.
        """
        answer = UnsentAnswer(holder, {id(body): body for body in bodies if body}, cut)
        self._by_holder.setdefault(holder, {})[answer] = None
        self._of_holder.setdefault(holder, CountedBodies())
        for key, size in answer.unsent.items():
            self._change(holder, key, 0, size)
        while self._has_too_much(holder) and len(self._by_holder[holder]) > 1:
            self._cut_oldest(holder)
        while self.used > self.total and sum(map(len, self._by_holder.values())) > 1:
            self._cut_oldest(max(self._by_holder, key=self._part))
        try:
            yield lambda body, count: self._sent(answer, id(body), count)
        finally:
            self._drop(answer)

    def held(self, holder: str) -> int:
        return self._of_holder[holder].used if holder in self._of_holder else 0

    def _has_too_much(self, holder: str) -> bool:
        return self.held(holder) > self.share or len(self._by_holder[holder]) > MOST_ANSWERS

    def _part(self, holder: str) -> float:
        """Returns the bytes that the caller holds; a body that it shares with others counts in equal parts."""
        answers = self._by_holder[holder]
        return sum(size / self._all.sharers(key) for answer in answers for key, size in answer.unsent.items() if size)

    def _sent(self, answer: UnsentAnswer, key: int, count: int) -> None:
        if before := answer.unsent.get(key, 0):
            answer.unsent[key] = max(0, before - count)
            self._change(answer.holder, key, before, answer.unsent[key])

    def _change(self, holder: str, key: int, before: int, after: int) -> None:
        self._all.change(key, before, after)
        self._of_holder[holder].change(key, before, after)

    def _cut_oldest(self, holder: str) -> None:
        oldest = next(iter(self._by_holder[holder]))
        self._drop(oldest)
        metrics.CUT_CONNECTIONS.labels("unread-answers").inc()
        oldest.cut()

    def _drop(self, answer: UnsentAnswer) -> None:
        answers = self._by_holder.get(answer.holder, {})
        if answer not in answers:
            return
        for key in answer.unsent:
            self._sent(answer, key, answer.unsent[key])
        del answers[answer]
        if not answers:
            del self._by_holder[answer.holder], self._of_holder[answer.holder]
