"""The methods and paths of a server that its callers may use, as templates, manifests and messages spell them.

A rule is a method, or `*` for any, and a path: `{x}` is one segment or a part of one, at most once in it, and `**` at
the end is the rest, also nothing. In messages a rule that begins with `!` takes back what others admit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, TypeAlias

from msgspec import Meta

from agents.contract.spellings import LONGEST_RULE, MOST_RULES, RULE, SEGMENT

PathRule = Annotated[str, Meta(max_length=LONGEST_RULE, pattern=rf"^{RULE}$(?!\n)")]
PathRules = Annotated[tuple[PathRule, ...], Meta(max_length=MOST_RULES)]
SentRule = Annotated[str, Meta(max_length=2 * LONGEST_RULE, pattern=rf"^!?{RULE}$(?!\n)")]
PathsKey = Annotated[str, Meta(max_length=32, pattern=r"^([0-9a-f]{32})?$(?!\n)")]  # empty: not known
# Each message names the rules of a server once, and its copies name them by their key. A reader trusts no sender's key.
PathTable: TypeAlias = Annotated[
    dict[PathsKey, Annotated[tuple[SentRule, ...], Meta(max_length=MOST_RULES)]], Meta(max_length=65_536)
]


@lru_cache(maxsize=4096)
def hash_rules(rules: tuple[str, ...]) -> str:
    """Returns the key of rules, which is the same wherever they are the same."""
    return blake2b("\n".join(rules).encode(), digest_size=16).hexdigest()


def build_table(every: Iterable[tuple[str, ...] | None]) -> dict[str, tuple[str, ...]]:
    """Returns the table of all these rules, without what is not known."""
    return {hash_rules(rules): rules for rules in every if rules is not None}


def find_rules(table: Mapping[str, tuple[str, ...]], key: str) -> tuple[str, ...] | None:
    """Returns the rules of a key: none if the table lacks it, and None if they are not known."""
    return table.get(key, ()) if key else None


def make_rule(path: str) -> str:
    """Returns a request's path as a rule has it, without its query; what no rule can spell becomes a hole."""
    segments = path.partition("?")[0].lstrip("/").split("/")
    return "/" + "/".join(segment if re.fullmatch(SEGMENT, segment) else "{x}" for segment in segments if segment)
