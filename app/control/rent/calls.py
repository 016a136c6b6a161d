"""What a hook is called with, and what counts as its answer, however it is reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from app.control.rent.states import HookAnswer, HookVerb

LONGEST_MESSAGE = 500  # characters of a hook's message
MOST_READ_BYTES = 1 << 16  # of what a hook says
VARIABLES = {
    "verb": "GPUWRIGHT_VERB", "key": "GPUWRIGHT_KEY", "pool": "GPUWRIGHT_POOL", "node": "GPUWRIGHT_NODE",
    "gpuType": "GPUWRIGHT_GPU_TYPE", "gpus": "GPUWRIGHT_GPUS", "region": "GPUWRIGHT_REGION",
    "purchase": "GPUWRIGHT_PURCHASE",
}  # fmt: skip
ALLOWED = {"rent": ("accepted", "refused", "pending"), "return": ("returned", "pending")}


@dataclass(frozen=True, slots=True)
class HookOrder:
    """What a hook is called for: one node, under one key however often it is called."""

    verb: HookVerb
    hook: str
    key: str
    pool: str
    node: str
    spec: Mapping[str, object]  # of the node, as it is declared

    @property
    def document(self) -> dict[str, object]:
        """Returns what a hook gets: of the node's spec as much as is stated."""
        named: dict[str, object] = {"verb": self.verb, "key": self.key, "pool": self.pool, "node": self.node}
        return {name: value for name, value in (dict(self.spec) | named).items() if name in VARIABLES}

    @property
    def environment(self) -> dict[str, str]:
        """Returns what a script finds in its environment; nothing of the planner's own is passed on."""
        named = {VARIABLES[name]: str(value) for name, value in self.document.items()}
        return named | {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


class HookCaller(Protocol):
    """Calls hooks by name."""

    def call(self, order: HookOrder) -> HookAnswer: ...


class _WrittenAnswer(msgspec.Struct):
    """The object that a hook answers with."""

    state: Literal["accepted", "refused", "returned", "pending"]
    message: str = ""


def read_answer(who: str, verb: HookVerb, written: str | bytes) -> HookAnswer:
    """Returns what a hook has answered, if that is one JSON object that answers the call."""
    allowed = ALLOWED[verb]
    try:
        answer = msgspec.json.decode(written, type=_WrittenAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = f"{who} did not answer with JSON such as {show_answer(verb)}: {error}"
        return HookAnswer("failed", make_plain(why))
    if answer.state not in allowed:
        why = f"{who} answered {answer.state} when asked to {verb}; allowed: {', '.join(allowed)}"
        return HookAnswer("failed", why)
    return HookAnswer(answer.state, make_plain(answer.message))


def show_answer(verb: HookVerb) -> str:
    """Returns an answer as an example."""
    return f'{{"state": "{ALLOWED[verb][0]}"}}'


def make_plain(text: str) -> str:
    """Returns the text as one line without control characters, of which databases and terminals refuse or obey some."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[-LONGEST_MESSAGE:]
