"""Names the manifests changed since the solver last answered: the likely cause when it keeps failing."""

from __future__ import annotations

from collections.abc import Sequence

from app.control.domain.snapshot import DeclaredObject

MOST_NAMED = 5


def suspects(answered: Sequence[DeclaredObject], declared: Sequence[DeclaredObject]) -> tuple[DeclaredObject, ...]:
    """Returns the objects that are new or changed since the last answer; none where no answer is known."""
    known = {
        (declared_object.kind, declared_object.tenant, declared_object.name): declared_object.spec
        for declared_object in answered
    }
    if not known:
        return ()
    return tuple(
        declared_object
        for declared_object in declared
        if known.get((declared_object.kind, declared_object.tenant, declared_object.name)) != declared_object.spec
    )


def describe_suspects(found: Sequence[DeclaredObject]) -> str:
    """Returns the text for messages: `declared since it last answered: Service shop/search, Profile resnet-t4`."""
    if not found:
        return ""
    names = [
        f"{declared_object.kind} {declared_object.tenant}/{declared_object.name}"
        if declared_object.tenant
        else f"{declared_object.kind} {declared_object.name}"
        for declared_object in found
    ]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"declared since it last answered: {', '.join(names[:MOST_NAMED])}{more}"
