"""Turns Pydantic's errors into faults of a manifest: field, value, what is allowed, what was meant."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.manifests import kinds
from app.manifests.faults import SHOWN_CHARACTERS, ManifestFault, escape, nearest, quote, shown
from app.manifests.kinds import Schema
from app.manifests.model import JSON, Kind
from app.manifests.uncertain import FIELDS_OF

TYPES: Mapping[str, str] = {
    "float_type": "a number",
    "int_type": "a whole number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "int_from_float": "a whole number",
    "finite_number": "a finite number",
}
BOUNDS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal", "int_parsing_size"}
MOST_NAMED = 12  # of the known fields


def word_faults(kind: Kind, error: ValidationError, document: str, most: int) -> list[ManifestFault]:
    """Returns the error's faults, up to `most`."""
    found: list[ManifestFault] = []
    earlier: set[str] = set()
    for detail in error.errors(include_url=False, include_context=True):
        path = tuple(part for part in detail["loc"] if not str(part).startswith("<"))
        if path and path[-1] in UNION_BRANCHES:
            path = path[:-1]
        is_key = bool(path) and path[-1] == "[key]"
        if is_key:
            path = path[:-1]
        field = spell_path(("spec", *path))
        if field in earlier and detail["type"] in UNION_TYPES:
            continue
        earlier.add(field)
        found.append(_fault(kind, detail, path, field, is_key, document))
        if len(found) >= most:
            break
    return found


# A runtime's argument has one of four types, and Pydantic reports each type that does not match.
UNION_BRANCHES = frozenset({"str", "bool", "int", "float", "function-after[_argument(), str]"})
UNION_TYPES = frozenset({"string_type", "bool_type", "int_type", "float_type"})


def _fault(
    kind: Kind, detail: ErrorDetails, path: tuple[str | int, ...], field: str, is_key: bool, document: str
) -> ManifestFault:
    what, value, context = detail["type"], detail["input"], detail.get("ctx") or {}
    if what == "gpuwright":
        return ManifestFault(document, field, context["message"], context["allowed"], shown(value))
    if what == "missing":
        return ManifestFault(document, field, "this field is required", _description(kind, path))
    if what == "extra_forbidden":
        form = str(detail["loc"][-2]) if len(detail["loc"]) > 1 else ""
        return _unknown_field(kind, path, field, value, document, form)
    if value is None:
        return ManifestFault(document, field, "null is not allowed here; leave the field out", _description(kind, path))
    allowed = _describe_allowed(_schema_at(kind, path), value)
    if what in BOUNDS:
        meant = percentage_meant(field, value)
        return ManifestFault(document, field, f"{quote(value)} is out of range", allowed, shown(value), meant)
    if what == "literal_error":
        return _wrong_choice(kind, path, field, value, document)
    if what == "string_pattern_mismatch":
        noun = "key" if is_key else "path" if str(context.get("pattern", "")).startswith("^/") else "name"
        return ManifestFault(
            document, field, f"{quote(value)} is not a valid {noun} here", _pattern(context), shown(value)
        )
    if what in LENGTHS:
        return _length_fault(detail, document, field)
    if is_key:
        return ManifestFault(document, field, f"{quote(value)} is not a valid key here", "a string", shown(value))
    if what in TYPES:
        wanted = allowed if allowed.startswith("a string or") else TYPES[what]
        is_text = isinstance(value, str) and "number" in wanted
        meant = number_meant(field, value) if is_text else _form_meant(what, value)
        kindly = " (a string: leave the quotes out)" if is_text and _is_number(value) else ""
        return ManifestFault(
            document, field, f"{quote(value)} is not {wanted}{kindly}", allowed or wanted, shown(value), meant
        )
    return ManifestFault(document, field, f"{quote(value)}: {detail['msg']}", allowed, shown(value))


def _form_meant(what: str, value: object) -> str:
    """Returns the words of a line where a list is wanted, and 100000 where 1e5 was stated."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value)) if what in ("int_type", "int_from_float") else ""
    if what != "list_type" or not isinstance(value, str) or len(value) > SHOWN_CHARACTERS:
        return ""
    try:
        return escape(json.dumps(shlex.split(value), ensure_ascii=False))
    except ValueError:
        return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _unknown_field(
    kind: Kind, path: tuple[str | int, ...], field: str, value: JSON, document: str, form: str
) -> ManifestFault:
    around = _branches(kinds.schema(kind), _schema_at(kind, path[:-1]))
    known = sorted(FIELDS_OF.get(form) or {name for branch in around for name in branch.get("properties", ())})
    named = f"one of {', '.join(known)}" if len(known) <= MOST_NAMED else ""
    word = str(path[-1])
    message = f"there is no field {quote(word)} here"
    return ManifestFault(document, field, message, named, shown(value), nearest(word, known))


def _wrong_choice(kind: Kind, path: tuple[str | int, ...], field: str, value: JSON, document: str) -> ManifestFault:
    node = _schema_at(kind, path)
    meant = nearest(value, node.get("enum", ())) if isinstance(value, str) else ""
    message = f"{quote(value)} is not one of the choices"
    return ManifestFault(document, field, message, _describe_allowed(node, value), shown(value), meant)


LENGTHS = {"too_short", "too_long", "string_too_long"}


def _length_fault(detail: ErrorDetails, document: str, field: str) -> ManifestFault:
    what, value, context = detail["type"], detail["input"], detail.get("ctx") or {}
    if what == "too_short":
        noun = "list" if isinstance(value, list) else "mapping"
        return ManifestFault(document, field, f"the {noun} is empty", "at least one entry")
    if what == "too_long":
        noun = "list" if isinstance(value, list) else "mapping"
        return ManifestFault(
            document, field, f"the {noun} is too long", f"at most {context.get('max_length'):,} entries"
        )
    most = f"at most {context.get('max_length')} characters"
    return ManifestFault(document, field, f"the string has {len(value)} characters", most, shown(value))


def spell_path(path: Sequence[str | int]) -> str:
    """Returns `spec.variants[0].name`; unusual keys are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + escape(part)
    return text


def _pattern(context: Mapping[str, object]) -> str:
    pattern = str(context.get("pattern", ""))
    if pattern == "^[A-Z]{3}$":
        return "three capital letters, such as EUR"
    if pattern.startswith("^[a-z0-9]"):
        if "/" in pattern:
            return "tenant/name, both of a-z, 0-9 and -"
        return "1..63 characters a-z, 0-9 and -, beginning and ending with a letter or digit"
    if pattern.startswith("^/"):
        return "a path of up to 500 characters, such as /healthz"
    if pattern.startswith("^[A-Za-z_]["):
        return "1..128 letters, digits and _, not beginning with a digit"
    if pattern.startswith("^[A-Za-z]["):
        return "1..63 characters of letters, digits, -, _ and ., beginning with a letter"
    return "1..63 characters of letters, digits, -, _ and ., beginning and ending with a letter or digit"


def _describe_allowed(node: Schema, value: JSON) -> str:
    """Returns a text about what the schema allows in this place."""
    if "enum" in node:
        return ", ".join(str(choice) for choice in node["enum"])
    if len(node.get("anyOf", ())) > 1:
        return " or ".join(_describe_allowed(branch, value) for branch in node["anyOf"])
    for branch in node.get("oneOf", ()):
        if (branch.get("type") == "object") == isinstance(value, dict):
            return _describe_allowed(branch, value)
    noun = {
        "number": "a number",
        "integer": "a whole number",
        "string": "a string",
        "boolean": "true or false",
        "array": "a list",
        "object": "a mapping",
    }.get(node.get("type", ""), "")
    if node.get("type") not in ("number", "integer"):
        return noun
    least, over, most = node.get("minimum"), node.get("exclusiveMinimum"), node.get("maximum")
    if (below := node.get("exclusiveMaximum")) is not None:
        return f"{noun} {_plain(least)}..{_plain(below)}, without {_plain(below)}"
    end = _plain(most)
    if over is not None:
        return f"{noun} over {_plain(over)}, at most {end}"
    return f"{noun} {_plain(least)}..{end}" if least is not None else noun


def _plain(bound: float | None) -> str:
    return "" if bound is None else f"{bound:g}".replace("e+", "e")


def _description(kind: Kind, path: tuple[str | int, ...]) -> str:
    node = _schema_at(kind, path)
    text = _describe_allowed(node, None)
    about = str(node.get("description", ""))
    if not about[1:2].isupper():  # CPU, GPUs and ISO stay as they are
        about = about[:1].lower() + about[1:]
    return ": ".join(part for part in (text, about) if part)


def _schema_at(kind: Kind, path: Sequence[str | int]) -> Schema:
    """Returns the schema at a path; empty if the path leads nowhere."""
    root = kinds.schema(kind)
    node = root
    for part in path:
        node = _step(root, node, part)
    return _resolve(root, node)


def _step(root: Schema, node: Schema, part: str | int) -> Schema:
    for candidate in _branches(root, node):
        if isinstance(part, int) and "items" in candidate:
            return candidate["items"]  # type: ignore[no-any-return]
        if part in candidate.get("properties", ()):
            return candidate["properties"][part]  # type: ignore[no-any-return]
        inner = candidate.get("additionalProperties") or next(
            iter(candidate.get("patternProperties", {}).values()), None
        )
        if isinstance(inner, dict):
            return inner
    return {}


def _branches(root: Schema, node: Schema) -> Iterator[Schema]:
    node = _resolve(root, node)
    yield node
    for branch in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _branches(root, branch)


def _resolve(root: Schema, node: Schema) -> Schema:
    """Follows a reference, and drops `or null`, which no message recommends."""
    if "$ref" in node:
        about = {key: value for key, value in node.items() if key == "description"}
        return {**_resolve(root, root["$defs"][node["$ref"].rpartition("/")[2]]), **about}
    branches = [branch for branch in node.get("anyOf", ()) if branch.get("type") != "null"]
    if len(branches) == 1:
        about = {key: value for key, value in node.items() if key == "description"}
        return {**_resolve(root, branches[0]), **about}
    return node


_WITH_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%][A-Za-z]*|/s|/h|rps|qps)\s*", re.ASCII)
_FACTORS = {  # by the end of the field's name: how many of its unit one of the stated unit is
    "Ms": {"ms": 1.0, "s": 1000.0, "us": 0.001, "m": 60_000.0},
    "Seconds": {"s": 1.0, "ms": 0.001, "m": 60.0, "h": 3600.0},
    "Minutes": {"m": 1.0, "min": 1.0, "h": 60.0},
    "PerSecond": {"/s": 1.0, "rps": 1.0, "qps": 1.0},
    "PerHour": {"/h": 1.0},
    "Gib": {"gib": 1.0, "gi": 1.0, "gb": 1.0, "mib": 1 / 1024, "mi": 1 / 1024},
    "W": {"w": 1.0, "kw": 1000.0},
    "percentile": {"%": 1.0},
}


def number_meant(field: str, text: str) -> str:
    """Returns the number in the field's own unit; empty where the text has no unit that belongs to the field."""
    stated = _WITH_UNIT.fullmatch(text)
    if stated is None:
        return ""
    for end, factors in _FACTORS.items():
        if field.endswith(end) and stated[2].lower() in factors:
            return f"{float(stated[1]) * factors[stated[2].lower()]:.12g}"
    return ""


def percentage_meant(field: str, value: object) -> str:
    """Returns 98 where a percentile was stated as 0.98."""
    is_share = isinstance(value, float) and 0.5 <= value < 1 and field.endswith("percentile")
    return f"{100 * float(str(value)):.12g}" if is_share else ""
