"""The kinds as they are typed on the command line: plural, singular or short."""

from __future__ import annotations

from difflib import get_close_matches
from urllib.parse import quote

from app.manifests.model import STORED, Kind
from cli.exits import Failed

SHORT = {
    Kind.SERVICE: "svc",
    Kind.GPU_TYPE: "gt",
    Kind.NODE: "no",
    Kind.POOL: "pl",
    Kind.MODEL: "mo",
    Kind.PROFILE: "pr",
    Kind.POLICY: "po",
    Kind.TENANT: "ten",
    Kind.JOB: "jo",
}
ELSEWHERE = {  # what other command lines get, and what shows it here
    "plans": "gpuwright plan history",
    "decisions": "gpuwright plan history",
    "events": "gpuwright events",
    "pods": "gpuwright describe service NAME",
    "copies": "gpuwright describe service NAME",
    "instances": "gpuwright describe service NAME",
    "gpus": "gpuwright top",
    "tokens": "gpuwright token list",
    "webhooks": "gpuwright webhook list",
    "contexts": "gpuwright config contexts",
}
# what refers to others first, so that deleting in this order is never refused for it
DELETE_ORDER = (
    Kind.SERVICE, Kind.JOB, Kind.PROFILE, Kind.MODEL, Kind.NODE, Kind.POOL, Kind.GPU_TYPE, Kind.TENANT, Kind.POLICY,
)  # fmt: skip


def words(kind: Kind) -> tuple[str, str, str]:
    """Plural, singular and short form."""
    return kind.plural, kind.value.lower(), SHORT[kind]


WORDS = {word: kind for kind in STORED for word in words(kind)}


def kind_of(word: str) -> Kind:
    """Returns the kind that is meant by `services`, `Service` or `svc`."""
    found = WORDS.get(word.lower())
    if found is not None:
        return found
    # Short forms are left out, and far words: pods are not policies, nor events tenants.
    elsewhere = ELSEWHERE.get(word.lower()) or ELSEWHERE.get(f"{word.lower()}s")
    near = get_close_matches(word.lower(), [known for known in WORDS if len(known) > 3], n=1, cutoff=0.7)
    meant = f"; did you mean {near[0]}?" if near else "; a kind comes before a name" if "/" in word else ""
    meant = f"; see: {elsewhere}" if elsewhere else meant
    known = ", ".join(f"{kind.plural} ({SHORT[kind]})" for kind in STORED)
    raise Failed(f"unknown kind {word!r}{meant}", particulars=[f"kinds: {known}"])


def kinds_of(text: str) -> list[Kind]:
    """Returns the kinds of `services,jobs`; all of them for `all`."""
    if text == "all":
        return list(STORED)
    return list(dict.fromkeys(kind_of(word) for word in text.split(",")))


def label(kind: str, tenant: str | None, name: str) -> str:
    """`service/shop/search`, the way objects are named on output."""
    return "/".join(part for part in (kind.lower(), tenant, name) if part)


def object_path(kind: str, tenant: str, name: str) -> str:
    """Returns the path of an object; `kind` is its plural."""
    parts = [kind, tenant, name] if tenant else [kind, name]
    return "/api/v1/" + "/".join(quote(part, safe="") for part in parts)
