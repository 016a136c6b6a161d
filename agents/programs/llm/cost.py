"""The time of an iteration by its coefficients, and what bounds it: as in docs/token-model.md."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class CostError(Exception):
    """Coefficients that cannot be used; the message names the fault."""


@dataclass(frozen=True, slots=True)
class StubCost:
    """The coefficients of an iteration's time, in milliseconds. A test compares it with the planner's formula."""

    base_ms: float = 0.0
    token_ms: float = 0.0
    weights_ms: float = 0.0
    sequence_ms: float = 0.0
    kv_token_ms: float = 0.0
    prompt_pair_ms: float = 0.0
    mixed_ms: float = 0.0

    def milliseconds(self, prompt_tokens: int, prompt_pairs: float, sequences: int, kv_tokens: int) -> float:
        computing = self.token_ms * (prompt_tokens + sequences)
        attention = self.kv_token_ms * kv_tokens + self.prompt_pair_ms * prompt_pairs
        mixed = self.mixed_ms if prompt_tokens > 0 else 0.0
        return self.base_ms + max(self.weights_ms, computing) + self.sequence_ms * sequences + attention + mixed


@dataclass(frozen=True, slots=True)
class StubLimits:
    """The limits of an iteration: requests at once, tokens computed in it, tokens held in memory."""

    sequences: int
    tokens_per_iteration: int
    kv_tokens: int


FIELDS = {
    "baseMs": "base_ms",
    "tokenMs": "token_ms",
    "weightsMs": "weights_ms",
    "sequenceMs": "sequence_ms",
    "kvTokenMs": "kv_token_ms",
    "promptPairMs": "prompt_pair_ms",
    "mixedMs": "mixed_ms",
}


def read_words(text: str) -> StubCost:
    """Parses coefficients from one word: `baseMs=4,tokenMs=0.02`."""
    return _cost({name: ms for name, _, ms in (part.partition("=") for part in text.split(",") if part)})


def read_file(path: Path) -> StubCost:
    """Reads a JSON file with the coefficients, or with an object `iteration` that has them; ignores other fields."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise CostError(f"{path}: {error}") from error
    inner = document.get("iteration", document) if isinstance(document, dict) else None
    if not isinstance(inner, dict):
        raise CostError(f"{path}: not an object of coefficients")
    return _cost({name: inner[name] for name in FIELDS if name in inner})


def _cost(values: Mapping[str, object]) -> StubCost:
    unknown = sorted(values.keys() - FIELDS.keys())
    if unknown:
        raise CostError(f"{unknown[0][:40]!r} is not a coefficient; there are {', '.join(FIELDS)}")
    return StubCost(**{FIELDS[name]: _milliseconds(name, value) for name, value in values.items()})


def _milliseconds(name: str, value: object) -> float:
    """Returns the number, or the mean of a value with a spread."""
    if isinstance(value, dict) and "mean" in value:
        value = value["mean"]
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number <= 1e6:
        raise CostError(f"{name} {str(value)[:40]!r} is not a number of milliseconds 0..1000000")
    return number
