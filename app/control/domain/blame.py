"""Names the manifests changed since the solver last answered: the likely cause when it keeps failing."""

from __future__ import annotations

from collections.abc import Sequence

from app.control.domain.snapshot import DeclaredObject

MOST_NAMED = 5


def suspects(answered: Sequence[DeclaredObject], declared: Sequence[DeclaredObject]) -> tuple[DeclaredObject, ...]:
    """Returns the objects that are new or changed since the last answer; none where no answer is known."""
    known = {(item.kind, item.tenant, item.name): item.spec for item in answered}
    if not known:
        return ()
    return tuple(item for item in declared if known.get((item.kind, item.tenant, item.name)) != item.spec)


def suspects_of_tenant(found: Sequence[DeclaredObject], tenant: str) -> tuple[DeclaredObject, ...]:
    """Returns the suspects that a tenant may read of: its own."""
    return tuple(item for item in found if item.tenant == tenant)


def describe_suspects(found: Sequence[DeclaredObject]) -> str:
    """Returns the text for messages: `declared since it last answered: Service shop/search, Profile resnet-t4`."""
    if not found:
        return ""
    names = [f"{item.kind} {item.tenant}/{item.name}" if item.tenant else f"{item.kind} {item.name}" for item in found]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"declared since it last answered: {', '.join(names[:MOST_NAMED])}{more}"
