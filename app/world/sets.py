"""Sets of declared objects: what is applied as a set carries its name as a label, and pruning deletes what left it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from app.access import AccessVerb, Principal, reach, require
from app.manifests.faults import ManifestFault, quote
from app.manifests.heading import SET_LABEL
from app.manifests.model import STORED, Key, Manifest
from app.manifests.words import LABEL
from app.problem import HttpProblem
from app.store.world import objects
from app.store.world.objects import Selection, StoredObject
from app.world.consistent import invalid
from app.world.decisions import ObjectDecision

LONGEST_LABEL = 63
PAGE = 1000
MOST_NAMED = 10  # objects in a refusal


@dataclass(frozen=True, slots=True)
class ObjectSet:
    """The set that manifests are applied as. `label` is the value of its objects' label."""

    label: str
    prune: bool = False  # delete what carries the label and is not among the manifests
    prune_fingerprint: str = ""  # of what a person has agreed to delete; empty: whatever it is


def name_set(principal: Principal, name: str, *, prune: bool = False, fingerprint: str = "") -> ObjectSet:
    """Returns the set that this caller calls `name`. A tenant's name is before its own, so no other set is touched."""
    label = f"{principal.tenant}.{name}" if principal.tenant else name
    room = LONGEST_LABEL - len(label) + len(name)
    if room < 1:
        most = f"at most {LONGEST_LABEL - 2} characters"
        raise HttpProblem("bad-request", f"tenant {quote(principal.tenant)} has too long a name for sets: {most}")
    if not re.fullmatch(LABEL, name) or len(label) > LONGEST_LABEL:
        allowed = f"1..{room} characters a-z, 0-9 and -, not beginning or ending in -"
        raise HttpProblem("bad-request", f"set {quote(name)} is not allowed: {allowed}")
    return ObjectSet(label, prune, fingerprint)


def join_set(manifests: Sequence[Manifest], current: Mapping[Key, StoredObject], joined: ObjectSet) -> list[Manifest]:
    """Returns the manifests with the label of the set; refuses those that another set has."""
    faults = [
        ManifestFault(
            f"{manifest.document} {manifest.key}", f"metadata.labels.{SET_LABEL}",
            f"{quote(written)} is another set than the one it is applied as", f"{joined.label}, or leave the label out",
            written,
        )
        for manifest in manifests
        if (written := manifest.labels.get(SET_LABEL, joined.label)) != joined.label
    ]  # fmt: skip
    if faults:
        raise invalid(faults)
    elsewhere = [
        f"{key} of set {stored.labels[SET_LABEL]}"
        for key, stored in current.items()
        if stored.labels.get(SET_LABEL, joined.label) != joined.label
    ]
    if elsewhere:
        raise HttpProblem(
            "conflict",
            f"another set has {_list_some(elsewhere)}; to move an object, apply it once without "
            "a set, which takes it out of its own",
        )
    return [replace(manifest, labels={**manifest.labels, SET_LABEL: joined.label}) for manifest in manifests]


def keep_sets(manifests: Sequence[Manifest], current: Mapping[Key, StoredObject]) -> list[Manifest]:
    """Returns the manifests, each with its object's set where it names none: only by name does an object leave a set.

    An object without the label is no longer pruned with its files, so who replaces it must not drop that unnoticed.
    """
    kept = []
    for manifest in manifests:
        stored = current.get(manifest.key)
        label = {SET_LABEL: stored.labels[SET_LABEL]} if stored and SET_LABEL in stored.labels else {}
        kept.append(replace(manifest, labels={**label, **manifest.labels}))
    return kept


def refuse_foreign_sets(principal: Principal, decisions: Iterable[ObjectDecision]) -> None:
    """Refuses a tenant that labels an object as one of a set of others: their next apply of it would be refused."""
    for decision in decisions if principal.tenant else ():
        before, after = (
            stored.labels.get(SET_LABEL) if stored else None for stored in (decision.before, decision.after)
        )
        if after is not None and after != before and not after.startswith(f"{principal.tenant}."):
            allowed = f"{principal.tenant}.NAME, or leave the label out"
            raise HttpProblem(
                "bad-request", f"{decision.key}: label {SET_LABEL} {quote(after)} is not allowed: {allowed}"
            )


def list_left_out(
    connection: Connection, principal: Principal, manifests: Sequence[Manifest], pruned: ObjectSet
) -> list[StoredObject]:
    """Returns the objects of the set that are not among the manifests.

    Refuses if the caller may not delete one, or if they are others than a person was shown.
    """
    named = {manifest.key for manifest in manifests}
    found = [stored for stored in _list_members(connection, principal, pruned) if stored.key not in named]
    for stored in found:
        require(principal, stored.kind, AccessVerb.WRITE, stored.tenant)
    keys = [stored.key for stored in found]
    if pruned.prune_fingerprint not in ("", make_fingerprint(keys)):
        now = _list_some([str(key) for key in keys]) or "nothing"
        raise HttpProblem(
            "precondition-failed",
            f"what left set {pruned.label} has changed since the dry run: {now} would be deleted now; look again",
        )
    return found


def make_fingerprint(keys: Iterable[Key]) -> str:
    """Returns what is the same for the same objects alone, in any order."""
    return hashlib.sha256("\n".join(sorted(map(str, keys))).encode()).hexdigest()[:32]


def _list_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def _list_members(connection: Connection, principal: Principal, pruned: ObjectSet) -> Iterator[StoredObject]:
    for kind in STORED:
        if principal.tenant and reach(principal, kind, AccessVerb.WRITE) is None:
            continue  # whatever carries the label there was labelled by others
        tenant = principal.tenant if kind.tenanted else ""
        selection = Selection(kind, tenant, has=(f"label:{SET_LABEL}={pruned.label}",))
        after = ("", "")
        while page := objects.page(connection, selection, after, PAGE):
            yield from page
            after = (page[-1].tenant, page[-1].name)
