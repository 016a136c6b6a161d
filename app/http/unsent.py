"""Counts the answers that wait for their readers, and cuts the oldest of those who leave too much unread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.http import metrics


@dataclass(frozen=True, slots=True, eq=False)
class UnsentAnswer:
    """A computed answer of which the client has not taken everything."""

    holder: str
    size: int
    cut: Callable[[], None]  # ends the sending


class UnsentAnswers:
    """The unsent answers of all callers.

    A caller over its share loses its oldest answer; while all together are over the total, the caller that holds most
    loses its oldest. So slow readers harm themselves, and no answer is refused because of another.
    """

    def __init__(self, total: int, share: int) -> None:
        self.total = total
        self.share = share
        self.used = 0
        self._by_holder: dict[str, dict[UnsentAnswer, None]] = {}  # the oldest first

    @contextmanager
    def hold(self, holder: str, size: int, cut: Callable[[], None]) -> Iterator[None]:
        """Counts an answer while it is sent; `cut` is called where it, or an older one, has to make room."""
        answer = UnsentAnswer(holder, size, cut)
        self._by_holder.setdefault(holder, {})[answer] = None
        self.used += size
        while self.held(holder) > self.share and len(self._by_holder[holder]) > 1:
            self._cut_oldest(holder)
        while self.used > self.total and sum(map(len, self._by_holder.values())) > 1:
            self._cut_oldest(max(self._by_holder, key=self.held))
        try:
            yield
        finally:
            self._drop(answer)

    def held(self, holder: str) -> int:
        return sum(answer.size for answer in self._by_holder.get(holder, ()))

    def _cut_oldest(self, holder: str) -> None:
        oldest = next(iter(self._by_holder[holder]))
        self._drop(oldest)
        metrics.CUT_CONNECTIONS.labels("unread-answers").inc()
        oldest.cut()

    def _drop(self, answer: UnsentAnswer) -> None:
        answers = self._by_holder.get(answer.holder, {})
        if answer in answers:
            del answers[answer]
            self.used -= answer.size
            if not answers:
                del self._by_holder[answer.holder]
