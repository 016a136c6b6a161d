"""Parses label and field selectors into entries of the index."""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.manifests.faults import nearest
from app.manifests.kinds import SPECS
from app.manifests.model import Kind
from app.problem import HttpProblem

LABEL = re.compile(r"(!?)\s*([A-Za-z0-9][A-Za-z0-9./_-]{0,316})\s*(?:(==|=|!=)\s*([A-Za-z0-9._-]{0,63}))?")
FIELD = re.compile(r"((?:metadata|spec)(?:\.[A-Za-z][A-Za-z0-9]{0,63}){1,4})\s*(==|=|!=)\s*([^,=!\x00-\x1f]{0,253})")
MOST_TERMS = 20


@dataclass(frozen=True, slots=True)
class SelectorTerms:
    """Entries of `selectable` that an object must have, and entries that it must not have."""

    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


def parse(labels: str, fields: str = "", kind: Kind | None = None) -> SelectorTerms:
    """Parses `a=b,c!=d,e,!f` on labels and `spec.model=resnet50,metadata.name!=x` on the fields of a kind."""
    has: list[str] = []
    lacks: list[str] = []
    for term in _terms(labels, "labelSelector"):
        match = LABEL.fullmatch(term)
        if match is None or (match[1] and match[3]):
            raise _unreadable("labelSelector", term, "key, !key, key=value, key!=value")
        negated, name, operator, value = match.groups()
        entry = f"label:{name}" if operator is None else f"label:{name}={value}"
        (lacks if negated or operator == "!=" else has).append(entry)
    for term in _terms(fields, "fieldSelector"):
        match = FIELD.fullmatch(term)
        if match is None:
            raise _unreadable("fieldSelector", term, "metadata.name=value, spec.path=value, with = or !=")
        path, operator, value = match.groups()
        if kind:
            _refuse_unknown(path, kind)
        (lacks if operator == "!=" else has).append(f"{path}={value.strip()}")
    return SelectorTerms(tuple(has), tuple(lacks))


def _terms(text: str, parameter: str) -> list[str]:
    terms = [term.strip() for term in text.split(",")] if text.strip() else []
    if len(terms) > MOST_TERMS:
        raise HttpProblem("bad-request", f"{parameter} has {len(terms)} terms; allowed: at most {MOST_TERMS}")
    return terms


def _refuse_unknown(path: str, kind: Kind) -> None:
    """Refuses a misspelt field: it would match nothing, which looks like an answer."""
    root, name = path.split(".")[:2]
    specs = [field.alias for field in SPECS[kind].model_fields.values() if field.alias]
    known = specs if root == "spec" else ["name", "tenant"]
    if name not in known:
        meant = nearest(name, known)
        hint = f"did you mean {root}.{meant}?" if meant else f"{root} has {', '.join(known)}"
        raise HttpProblem("bad-request", f"fieldSelector: a {kind} has no field {path}; {hint}")


def _unreadable(parameter: str, term: str, allowed: str) -> HttpProblem:
    return HttpProblem("bad-request", f"{parameter} term {term[:80]!r} is not understood; allowed: {allowed}")
