"""Lists the differences between two JSON values, field by field."""

from __future__ import annotations

from dataclasses import dataclass

from app.manifests.model import JSON


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field before and after; None where it is absent."""

    path: str  # `spec.slo.latencyMs`, `spec.variants[1].name`
    before: JSON
    after: JSON


_ABSENT = object()


def diff(before: JSON, after: JSON) -> list[FieldChange]:
    """Returns the changed fields in the order of the new value, then the removed ones."""
    changes: list[FieldChange] = []
    _compare("", before, after, changes)
    return changes


def _compare(path: str, before: JSON, after: JSON, changes: list[FieldChange]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*after, *(key for key in before if key not in after)]:
            inner = f"{path}.{key}" if path else key
            _entry(inner, before.get(key, _ABSENT), after.get(key, _ABSENT), changes)
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            old = before[index] if index < len(before) else _ABSENT
            new = after[index] if index < len(after) else _ABSENT
            _entry(f"{path}[{index}]", old, new, changes)
    elif not _same(before, after):
        changes.append(FieldChange(path, before, after))


def _entry(path: str, before: JSON | object, after: JSON | object, changes: list[FieldChange]) -> None:
    if before is _ABSENT or after is _ABSENT:
        old, new = (None if side is _ABSENT else side for side in (before, after))
        changes.append(FieldChange(path, old, new))  # type: ignore[arg-type]
    else:
        _compare(path, before, after, changes)  # type: ignore[arg-type]


def _same(before: JSON, after: JSON) -> bool:
    """Returns True for equal values; true and 1 differ, while 1 and 1.0 are the same number."""
    return before == after and isinstance(before, bool) == isinstance(after, bool)
