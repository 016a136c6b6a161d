"""The faults of an input, all at once: document, field, value and what is allowed."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from app.manifests.model import JSON

SHOWN_CHARACTERS = 80  # of a value that is echoed
ELSEWHERE = {"namespace": "tenant"}  # the names that other systems use
COMPARED_CHARACTERS = 64  # a longer word is no typing mistake, and slow to compare


SHORTEST_BEGINNING = 3  # of a word that stands for one it begins


@dataclass(frozen=True, slots=True)
class ManifestFault:
    """A fault: its place, the value, and what is allowed."""

    document: str  # `fleet.yaml#3 Service shop/search`
    field: str  # `spec.slo.latencyMs`
    message: str  # a sentence that names the fault
    allowed: str = ""  # the values that are allowed
    value: JSON = None  # the offending value, shortened
    suggestion: str = ""  # the word that was probably meant

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.document, self.field) if part)
        meant = f"; did you mean `{self.suggestion}`?" if self.suggestion else ""
        allowed = f" (allowed: {self.allowed})" if self.allowed and self.allowed not in self.message else ""
        return f"{where}: {self.message}{allowed}{meant}" if where else f"{self.message}{allowed}{meant}"


class ManifestsRefused(Exception):
    """The whole input is refused, because of its `faults`."""

    def __init__(self, faults: Sequence[ManifestFault], *, too_large: bool = False) -> None:
        super().__init__("; ".join(str(fault) for fault in faults[:3]))
        self.faults = list(faults)
        self.too_large = too_large  # over a limit of size, count or time

    def __reduce__(self) -> tuple[object, ...]:
        # The parser's process sends it; a pickled exception loses its keyword arguments.
        return _refuse, (self.faults, self.too_large)


def _refuse(faults: Sequence[ManifestFault], too_large: bool) -> ManifestsRefused:
    return ManifestsRefused(faults, too_large=too_large)


def shown(value: JSON) -> JSON:
    """Returns the value in a form that may be echoed: short, and with nothing that controls a terminal or a log."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    if isinstance(value, int) and not -(2**53) <= value <= 2**53:
        return escape(str(value) if value.bit_length() < 4096 else "a number of over 1,000 digits")
    return value


def quote(value: JSON) -> str:
    """Returns the value as it appears in a sentence."""
    short = shown(value)
    return short if isinstance(short, str) and not isinstance(value, str) else json.dumps(short, ensure_ascii=False)


def escape(text: str) -> str:
    """Returns the text shortened, with control, formatting (bidi) and line characters escaped."""
    cut = text[:SHOWN_CHARACTERS]
    if not (cut.isascii() and cut.isprintable()):
        cut = "".join(_escape(character) for character in cut)
    return cut if len(text) <= SHOWN_CHARACTERS else cut + f"... ({len(text)} characters)"


def _escape(character: str) -> str:
    if unicodedata.category(character)[0] == "C" or character in "\u2028\u2029":
        return character.encode("unicode_escape").decode() if ord(character) < 0xD800 else f"\\U{ord(character):08x}"
    return character


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns the known word that was probably meant, or an empty string."""
    if not word or len(word) > COMPARED_CHARACTERS:
        return ""
    lower = {candidate.lower(): candidate for candidate in known}
    if (same := ELSEWHERE.get(word.lower(), "")) in lower:
        return lower[same]
    found = get_close_matches(word.lower(), lower, n=3, cutoff=0.6)
    # Swapped letters are the likelier slip: modle is model, though mode is closer by a letter.
    found.sort(key=lambda candidate: sorted(candidate) != sorted(word.lower()))
    if not found:  # rate is ratePerSecond, where nothing else begins so
        longer = [candidate for candidate in lower if candidate.startswith(word.lower())]
        found = longer if len(longer) == 1 and len(word) >= SHORTEST_BEGINNING else []
    return lower[found[0]] if found else ""
