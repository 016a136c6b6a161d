"""The users' own images and commands that a node's allow-list admits, and the check that a runtime is among it.

Agent and control plane use the same check. The agent's decides; the control plane's foretells what it will be.
A pattern is plain text with holes such as {integer:1..8}; it is no regular expression, so that a dishonest
node's pattern cannot keep the control plane busy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from msgspec import Meta, Struct

from agents.contract.fields import Sentence
from agents.contract.runtimes import FILLED, VOLUME, Label, OwnRuntime, Text, Variable
from agents.contract.signatures import is_signed
from agents.contract.spellings import is_dangerous

MOST_HOLES = 2  # in one argument: with more, matching could take long
MOST_ENTRIES = 100
LONGEST_HOLE = 200
HOLES = {
    "word": rf"[A-Za-z0-9_][-A-Za-z0-9._]{{0,{LONGEST_HOLE - 1}}}",
    "path": rf"[A-Za-z0-9_][-A-Za-z0-9._/]{{0,{LONGEST_HOLE - 1}}}",
    "integer": r"-?[0-9]{1,18}",
    "text": rf"[^{{}}\x00-\x1f\x7f]{{0,{LONGEST_HOLE}}}",
    "choice": "",  # its words
}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BRACED = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})")


class AdmittedEntry(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One entry of an allow-list, as the node reports it: a command line, or an image with its arguments.

    `repository` stands for all images there, and below it, that `key` has signed.
    """

    name: Label
    argv: Annotated[tuple[Text, ...], Meta(max_length=100)] = ()  # patterns; of an image its arguments
    image: Annotated[str, Meta(max_length=400)] = ""
    repository: Annotated[str, Meta(max_length=400)] = ""
    key: Annotated[str, Meta(max_length=100)] = ""
    environment: Annotated[dict[Variable, Text], Meta(max_length=100)] | None = None  # variable -> pattern of its value
    secrets: Annotated[dict[Variable, Label], Meta(max_length=20)] | None = None
    volumes: Annotated[tuple[Label, ...], Meta(max_length=20)] = ()

    @property
    def is_of_images(self) -> bool:
        return bool(self.image or self.repository)

    def __str__(self) -> str:
        signed = f"signed images of {self.repository}" if self.repository else ""
        return f"{signed or self.image or ' '.join(self.argv[:1])} ({self.name})"


class MetadataState(Struct, frozen=True, rename="camel"):
    """The way a node keeps users' own runtimes from the cloud's metadata address, or the reason why it does not."""

    blocked: bool
    message: Sentence = ""


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """One thing of a runtime that a node does not admit: its field, and a sentence with what is admitted instead."""

    field: str
    message: str


class PatternFault(ValueError):
    """A pattern that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that has been read."""

    expression: re.Pattern[str]
    holes: tuple[str, ...]
    ranges: tuple[tuple[int, int] | None, ...]

    def matches(self, text: str) -> bool:
        """Returns whether the whole text fits."""
        found = self.expression.fullmatch(text)
        return found is not None and all(map(_fits, self.holes, self.ranges, found.groups()))


@lru_cache(maxsize=4096)
def read_pattern(text: str) -> Pattern:
    """Returns the pattern of a text; raises PatternFault."""
    parts: list[str] = []
    holes: list[str] = []
    ranges: list[tuple[int, int] | None] = []
    at = 0
    for found in _BRACED.finditer(text):
        parts.append(_literal(text[at : found.start()]))
        at = found.end()
        if found[1] in FILLED or found[1].startswith(VOLUME):
            parts.append(re.escape(found[0]))  # filled in by the agent: the runtime must have the same words here
            continue
        kind, colon, limits = found[1].partition(":")
        if kind not in HOLES or bool(colon) != bool(limits) or (limits and kind not in ("integer", "choice")):
            known = "{word}, {path}, {text}, {integer}, {integer:1..8}, {choice:a|b}"
            raise PatternFault(f"{found[0]} is not a hole; {known} and {{port}} and the like are")
        words = "|".join(map(re.escape, limits.split("|")))
        parts.append(f"({words})" if kind == "choice" else f"({HOLES[kind]})")
        if kind == "choice" and not limits:
            raise PatternFault("{choice} names no words; write {choice:a|b}")
        holes.append(kind)
        ranges.append(_range(found[0], limits) if kind == "integer" and limits else None)
    parts.append(_literal(text[at:]))
    if len(holes) > MOST_HOLES:
        raise PatternFault(f"{len(holes)} holes in one argument; at most {MOST_HOLES} are allowed")
    return Pattern(re.compile("".join(parts)), tuple(holes), tuple(ranges))


def find_not_admitted(entries: Sequence[AdmittedEntry], runtime: OwnRuntime) -> tuple[NotAdmitted, ...]:
    """Returns what the entry that comes closest does not admit; empty if an entry admits the runtime."""
    what = "image" if runtime.image else "command"
    close = [entry for entry in entries if _names(entry, runtime)]
    if not close:
        known = sorted({str(entry) for entry in entries if entry.is_of_images == bool(runtime.image)})
        named = f"it admits {', '.join(known)}" if known else f"it admits no {what}"
        shown = runtime.image or (runtime.argv[0] if runtime.argv else "")
        return (NotAdmitted(what, f"{what} {_shown(shown)} is not admitted by this node; {named}"),)
    found = [
        (*_signature_faults(entry, runtime), *_argument_faults(entry, runtime), *_other_faults(entry, runtime))
        for entry in close
    ]
    return min(found, key=lambda faults: (len(faults) > 0, bool(faults) and faults[0].field == "args", len(faults)))


def _names(entry: AdmittedEntry, runtime: OwnRuntime) -> bool:
    """Returns whether the entry is for this image or program, whatever else it admits."""
    if entry.repository:
        repository, _, digest = runtime.image.partition("@sha256:")
        return bool(_DIGEST.fullmatch(digest)) and f"{repository}/".startswith(f"{entry.repository}/")
    return entry.image == runtime.image if entry.image else entry.argv[:1] == runtime.argv[:1] and not runtime.image


def _signature_faults(entry: AdmittedEntry, runtime: OwnRuntime) -> list[NotAdmitted]:
    if not entry.repository or is_signed(runtime.image, runtime.signature, entry.key):
        return []
    why = "its signature is not by the key" if runtime.signature else "it has no signature by the key"
    return [NotAdmitted("signature", f"image {_shown(runtime.image)} is not admitted: {why} of {entry.name}")]


def _argument_faults(entry: AdmittedEntry, runtime: OwnRuntime) -> list[NotAdmitted]:
    """Compares the whole command line, word by word: neither more nor fewer, and each one whole."""
    given, wanted = runtime.argv, entry.argv
    for at, (word, pattern) in enumerate(zip(given, wanted, strict=False)):
        if not _matches(pattern, word):
            message = f"argument {at} {_shown(word)} is not admitted by {entry.name}, which admits {pattern} there"
            return [NotAdmitted("args", message)]
    if len(given) > len(wanted):
        more = given[len(wanted)]
        message = f"argument {len(wanted)} {_shown(more)} is not admitted by {entry.name}, which ends before it"
        return [NotAdmitted("args", message)]
    if len(given) < len(wanted):
        message = f"{entry.name} is admitted only with a further argument {wanted[len(given)]}"
        return [NotAdmitted("args", message)]
    return []


def _other_faults(entry: AdmittedEntry, runtime: OwnRuntime) -> list[NotAdmitted]:
    """Compares variables, secrets and volumes with the entry's own."""
    found = []
    allowed = entry.environment or {}
    for name, value in (runtime.env or {}).items():
        if name not in allowed or is_dangerous(name):
            found.append(_other("env", f"the variable {_shown(name)}", entry, sorted(allowed)))
        elif not _matches(allowed[name], value):
            message = f"{name}={_shown(value)} is not admitted by {entry.name}, which admits {allowed[name]}"
            found.append(NotAdmitted("env", message))
    pairs = entry.secrets or {}
    for name, secret in (runtime.secrets or {}).items():
        if pairs.get(name) != secret or is_dangerous(name):
            known = sorted(f"{variable} from {kept}" for variable, kept in pairs.items())
            found.append(_other("secrets", f"the secret {_shown(secret)} as {_shown(name)}", entry, known))
    found += [
        _other("volumes", f"the volume {_shown(name)}", entry, sorted(entry.volumes))
        for name in runtime.volumes
        if name not in entry.volumes
    ]
    return found


def _other(field: str, what: str, entry: AdmittedEntry, known: Sequence[str]) -> NotAdmitted:
    return NotAdmitted(
        field, f"{what} is not admitted by {entry.name}, which admits {', '.join(known) or 'none'}"[:400]
    )


def _matches(pattern: str, text: str) -> bool:
    try:
        return read_pattern(pattern).matches(text)
    except PatternFault:
        return False


def _literal(text: str) -> str:
    if "{" in text or "}" in text:
        raise PatternFault(f"unmatched brace in {text!r}")
    return re.escape(text)


def _range(hole: str, limits: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(limits)
    if found is None or int(found[1]) > int(found[2]):
        raise PatternFault(f"{hole} has no range; write {{integer:1..8}}")
    return int(found[1]), int(found[2])


def _fits(hole: str, limits: tuple[int, int] | None, text: str) -> bool:
    if hole == "path":
        return not {"..", ".", ""} & set(text.removesuffix("/").split("/"))
    return limits is None or limits[0] <= int(text) <= limits[1]


def _shown(text: str) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 120 else shown[:117] + "..."
