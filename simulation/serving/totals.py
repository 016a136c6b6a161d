"""The requests of a simulated fleet's services: how many came, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from agents.contract.fields import LATENCY_EDGES_MS
from agents.contract.gateways import LengthTotals, TokenTotals
from agents.keeper.copies import NodeCopy, Stage
from simulation.serving import tokens as of
from simulation.serving.batches import Ints
from simulation.serving.copies import CopyWork

NONE: Ints = np.zeros(len(LATENCY_EDGES_MS) + 1, dtype=np.int64)
NO_TOKENS: Ints = np.zeros(of.TOTALS, dtype=np.int64)


@dataclass(slots=True)
class Total:
    """The totals of a service since the beginning."""

    requests: int = 0
    refused: int = 0  # no copy could answer
    answered: int = 0
    accuracy_sum: float = 0.0  # of the variants that answered, request by request
    within: int = 0  # of the SLO; of a language model, with both promises kept
    errors: int = 0  # including those refused or turned away
    turned_away: int = 0  # by the gateway's limit in an overload
    counts: Ints = field(default_factory=NONE.copy)  # of latencies; of a language model, to the first token
    tokens: Ints = field(default_factory=NO_TOKENS.copy)  # sums of a language model's servers

    def copied(self) -> Total:
        return replace(self, counts=self.counts.copy(), tokens=self.tokens.copy())

    @property
    def attained(self) -> float:
        """Returns the share of requests answered within the SLO; 1 without requests."""
        done = self.answered + self.errors
        return self.within / done if done else 1.0

    def late_since(self, before: Total) -> int:
        """Returns the answers that were late since then; of a language model, those with a late first token."""
        if self.tokens.any():
            return int(self.tokens[of.LATE] - before.tokens[of.LATE])
        return self.answered - self.within - (before.answered - before.within)

    def tokens_since(self, before: Total) -> TokenTotals | None:
        """Returns the tokens since then; None of a service whose answers have none."""
        if not self.tokens.any():
            return None
        since = [max(0, int(count)) for count in self.tokens - before.tokens]
        return TokenTotals(since[of.TOKENS_IN], since[of.TOKENS_OUT], since[of.PACED], since[of.PACE_LATE])

    def lengths_since(self, before: Total) -> LengthTotals | None:
        """Returns the answers since then and their tokens; None of a service whose answers have none."""
        if not self.tokens.any():
            return None
        tokens_in, tokens_out = (int(self.tokens[at] - before.tokens[at]) for at in (of.TOKENS_IN, of.TOKENS_OUT))
        return LengthTotals(max(0, self.answered - before.answered), max(0, tokens_in), max(0, tokens_out))


class CountedCopies:
    """The totals already counted of each copy that still answers."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Ints, int, int, Ints]] = {}

    def add_up(self, total: Total, copy: NodeCopy, work: CopyWork, accuracy: float) -> None:
        """Adds to a service's totals what one of its copies has answered since the last time."""
        counts, within, errors, tokens = self._known.get(copy.id, (NONE, 0, 0, NO_TOKENS))
        new = work.answered - counts
        total.counts += new
        total.answered += int(new.sum())
        total.accuracy_sum += int(new.sum()) * accuracy
        total.within += work.within - within
        total.errors += work.errors - errors
        sums = work.token_sums()
        if sums is not None:
            total.tokens += sums - tokens
        if copy.stage is Stage.GONE:
            self._known.pop(copy.id, None)
            work.forget()
        else:
            known = NO_TOKENS if sums is None else sums.copy()
            self._known[copy.id] = (work.answered.copy(), work.within, work.errors, known)
