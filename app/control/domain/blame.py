"""Whom to look at when the solver fails on a question each time: what was declared since it answered last."""

from __future__ import annotations

from collections.abc import Sequence

from app.control.domain.snapshot import DeclaredObject

MOST_NAMED = 5


def suspects(answered: Sequence[DeclaredObject], declared: Sequence[DeclaredObject]) -> tuple[DeclaredObject, ...]:
    """What is new or otherwise than in the world of the last answer; nobody where none is known."""
    known = {(one.kind, one.tenant, one.name): one.spec for one in answered}
    if not known:
        return ()
    return tuple(one for one in declared if known.get((one.kind, one.tenant, one.name)) != one.spec)


def describe_suspects(found: Sequence[DeclaredObject]) -> str:
    """For messages: `declared since it answered last: Service shop/search, Profile resnet-t4`."""
    if not found:
        return ""
    names = [f"{one.kind} {one.tenant}/{one.name}" if one.tenant else f"{one.kind} {one.name}" for one in found]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"declared since it answered last: {', '.join(names[:MOST_NAMED])}{more}"
