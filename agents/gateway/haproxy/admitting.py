"""Decides which methods and paths callers may use: what a path may look like at all, and what a service's copies admit.

HAProxy looks a request up in a map, as KEY:METHOD:PATH, where KEY stands for the rules of one kind of server. The map
has an expression for each key, and another map has the keys of each service, all of which must admit the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from agents.contract.paths import hash_rules
from agents.gateway.desired import Desired, server_name
from agents.gateway.kinds import MOST_KINDS
from agents.gateway.wire import RouteSpec
from agents.templates.reading import read

LONGEST_PATH = 4000
# An escape is of UTF-8, and neither of `/`, `\\`, `%` nor of a control character.
_ESCAPE = (
    "%(?:2[0-46-9A-Ea-e]|[346][0-9A-Fa-f]|5[0-9ABD-Fabd-f]|7[0-9A-Ea-e]"
    "|[89ABDEabde][0-9A-Fa-f]|[Cc][2-9A-Fa-f]|[Ff][0-4])"
)
# The path as it came: segments of RFC 3986 without `;`, none of them empty, `.` or `..`. Servers disagree on what any
# other path means. \x27 is an apostrophe, which would end HAProxy's quotes.
PATH = rf"^(?:/(?!(?:[.]|%2[Ee]){{1,2}}(?:/|$))(?:[-A-Za-z0-9._~!$&\x27()*+,=:@]++|{_ESCAPE})++)++/?$"

MOST_KEYS = 2 * MOST_KINDS  # of a service: HAProxy asks for each of so many
NOTHING = "nothing"  # a key that no expression has
LONGEST_EXPRESSION = 4000  # of one entry; HAProxy reads lines of 16 kB
# A router of users may decode letters and digits, and may take upper and lower case for the same.
_NEEDLESS_ESCAPE = "%(?:4[1-9A-Fa-f]|5[0-9Aa]|6[1-9A-Fa-f]|7[0-9Aa]|3[0-9]|2[DdEe]|5[Ff]|7[Ee])"
_HOLE = re.compile(r"\{[A-Za-z0-9]+\}")


@lru_cache(maxsize=4096)
def render_expressions(rules: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the map's entries for these rules; none, so that nothing is admitted, if HAProxy could not read them."""
    refused = "|".join(_expression(rule[1:]) for rule in rules if rule.startswith("!"))
    if len(refused) > LONGEST_EXPRESSION:
        return ()
    guard = f"(?!(?i:{refused})(?:/|$))(?!.*{_NEEDLESS_ESCAPE})" if refused else ""
    admitted = (_expression(rule) for rule in rules if not rule.startswith("!"))
    return tuple(f"^{hash_rules(rules)}:{guard}(?:{'|'.join(part)})$" for part in _parts(admitted))


def _parts(expressions: Iterable[str]) -> Iterator[list[str]]:
    """Yields the expressions in parts that are short enough for one entry."""
    part: list[str] = []
    for expression in expressions:
        if part and sum(map(len, part)) + len(expression) > LONGEST_EXPRESSION:
            yield part
            part = []
        part.append(expression)
    if part:
        yield part


def _expression(rule: str) -> str:
    """Returns a rule as an expression of METHOD:PATH, without a backslash, which HAProxy's commands would take away."""
    method, path = rule.split(" ")
    known = "[^:]+" if method == "*" else method
    if path.endswith("/**"):
        return f"{known}:{_literal(path[:-2])}.*"
    return f"{known}:{_literal(path)}"


def _literal(path: str) -> str:
    fixed = [re.sub(r"[^-A-Za-z0-9_/]", lambda sign: f"[{sign[0]}]", text) for text in _HOLE.split(path)]
    return "[^/]+".join(fixed)


@lru_cache(maxsize=1)
def read_shipped_rules() -> tuple[str, ...]:
    """Returns what the shipped templates admit: all that is known of copies whose agent does not name their paths."""
    return tuple(sorted({rule for template in read().values() for rule in template.form.paths}))


def list_rules(desired: Desired) -> dict[str, set[tuple[str, ...]]]:
    """Returns the rules of each service's copies: of those that get new requests, if any does."""
    found: dict[str, set[tuple[str, ...]]] = {}
    drained: dict[str, set[tuple[str, ...]]] = {}
    for source, route in desired.routes():
        among = drained if route.drained else found
        among.setdefault(route.service, set()).add(_find_rules(desired, source, route))
    return drained | found


def _find_rules(desired: Desired, source: str, route: RouteSpec) -> tuple[str, ...]:
    rules = desired.find_kind(source, route)
    return read_shipped_rules() if rules is None else rules


def key_servers(desired: Desired) -> dict[str, str]:
    """Returns the key of what each server admits, by the server's name."""
    return {
        server_name(source, route.copy): hash_rules(_find_rules(desired, source, route))
        for source, route in desired.routes()
    }


def list_expressions(desired: Desired) -> dict[str, str]:
    """Returns the map of expressions."""
    every = {rules for found in list_rules(desired).values() for rules in found}
    return {expression: "1" for rules in sorted(every) for expression in render_expressions(rules)}


def list_keys(desired: Desired) -> dict[str, str]:
    """Returns the map of each service's keys."""
    return {service: join_keys(map(hash_rules, rules)) for service, rules in list_rules(desired).items()}


def join_keys(keys: Iterable[str]) -> str:
    """Returns the keys as HAProxy splits them; more than it asks for admit nothing."""
    known = sorted(set(keys))
    if len(known) > MOST_KEYS:
        return NOTHING
    return ".".join(known + known[:1] * (MOST_KEYS - len(known)))


def narrow_keys(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Returns the keys while copies come and go: a request must be admitted before and after."""
    both = {
        service: join_keys((*before[service].split("."), *after[service].split(".")))
        for service in before.keys() & after.keys()
    }
    return {**before, **after, **both}


def list_new_keys(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, set[str]]:
    """Returns the keys that each service did not have before: requests that wait, also from copies that are gone since,
    were not compared with them."""
    found = {service: {*keys.split(".")} - {*before.get(service, "").split(".")} for service, keys in after.items()}
    return {service: keys for service, keys in found.items() if keys}


def render_map(entries: Mapping[str, str]) -> str:
    """Returns a map's file."""
    return "".join(f"{key} {value}\n" for key, value in sorted(entries.items()))
