"""What people declared, changed or deleted between two looks at the world."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from app.control.domain.snapshot import DeclaredObject

MOST_NAMED = 3
Edit = Literal["declared", "changed", "deleted"]
DONE: tuple[Edit, ...] = ("declared", "changed", "deleted")


@dataclass(frozen=True, slots=True)
class AppliedObject:
    """An object that is not as it was."""

    kind: str
    name: str  # with its tenant, if it has one
    edit: Edit


def list_applied(before: Collection[DeclaredObject], after: Collection[DeclaredObject]) -> list[AppliedObject]:
    """Returns the objects that were declared, changed or deleted, by kind and name."""
    if before == after:
        return []
    was = {(item.kind, item.tenant, item.name): item.spec for item in before}
    now = {(item.kind, item.tenant, item.name): item.spec for item in after}
    return [
        AppliedObject(key[0], "/".join(filter(None, key[1:])), _name_edit(key in was, key in now))
        for key in sorted(was.keys() | now.keys())
        if was.get(key) != now.get(key)
    ]


def spell_applied(applied: Collection[AppliedObject]) -> str:
    """Returns what was done, with the first names: `Service shop/search was changed`."""
    return "; ".join(_spell_edits(applied))


def _name_edit(was_there: bool, is_there: bool) -> Edit:
    if was_there and is_there:
        return "changed"
    return "declared" if is_there else "deleted"


def _spell_edits(applied: Collection[AppliedObject]) -> Iterator[str]:
    for edit in DONE:
        names = [f"{item.kind} {item.name}" for item in applied if item.edit == edit]
        if names:
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            yield f"{', '.join(names[:MOST_NAMED])}{more} {'was' if len(names) == 1 else 'were'} {edit}"
