"""Reads requests of OpenAI's completions and chat completions, and words the answers. Everything else is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LONGEST_ANSWER = 1_000_000


class RequestRefused(Exception):
    """A request that the server does not take; the message says why."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One completion that was requested."""

    model: str
    chat: bool
    prompt_tokens: int
    max_tokens: int | None
    stream: bool
    with_usage: bool


def read_object(body: bytes) -> dict[str, Any]:
    """Returns the JSON object of a request's body; raises RequestRefused."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused("the body is not valid JSON") from error
    if not isinstance(document, dict):
        raise RequestRefused("the body must be an object")
    return document


def read_request(body: bytes, chat: bool, models: Sequence[str]) -> CompletionRequest:
    """Reads the body of a request for one of the models, the first if it names none; raises RequestRefused."""
    document = read_object(body)
    named = document.get("model", models[0])
    if named not in models:
        raise RequestRefused(f"the model {str(named)[:80]!r} does not exist; there is {models[0]!r}", 404)
    if document.get("n", 1) != 1 or document.get("best_of", 1) != 1:
        raise RequestRefused("n must be 1")
    stream = document.get("stream") or False
    options = document.get("stream_options") or {}
    if not isinstance(stream, bool) or not isinstance(options, dict):
        raise RequestRefused("stream must be true or false, and stream_options an object")
    return CompletionRequest(
        str(named),
        chat,
        _count_messages(document.get("messages")) if chat else _count_prompt(document.get("prompt")),
        _most_tokens(document),
        stream,
        options.get("include_usage") is True,
    )


def _most_tokens(document: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        most = document.get(name)
        if most is None:
            continue
        if type(most) is not int or not 1 <= most <= LONGEST_ANSWER:
            raise RequestRefused(f"{name} must be a whole number 1..{LONGEST_ANSWER}")
        return most
    return None


def _count_prompt(prompt: object) -> int:
    """Counts a text's words, which stand for its tokens, or a list's tokens."""
    if isinstance(prompt, str):
        return max(1, len(prompt.split()))
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return len(prompt)
    raise RequestRefused("prompt must be a text or a list of tokens")


def _count_messages(messages: object) -> int:
    if not isinstance(messages, list) or not messages:
        raise RequestRefused("messages must be a list of at least one message")
    words = 0
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        parts = content if isinstance(content, list) else [{"text": content}]
        for part in parts:
            text = part.get("text") if isinstance(part, dict) else None
            if not isinstance(text, str):
                raise RequestRefused("each message must have content: a text, or a list of parts with a text each")
            words += len(text.split())
    return max(1, words)


class Wording:
    """Words one answer: parts of a stream, or the whole."""

    def __init__(self, number: str, model: str, created: int, asked: CompletionRequest) -> None:
        self._asked = asked
        kind = ("chat.completion.chunk" if asked.stream else "chat.completion") if asked.chat else "text_completion"
        prefix = "chatcmpl" if asked.chat else "cmpl"
        self._head: dict[str, Any] = {
            "id": f"{prefix}-{number}", "object": kind, "created": created, "model": model,
        }  # fmt: skip
        usage = ', "usage": null' if asked.with_usage else ""
        opening = json.dumps(self._head)[:-1].encode()
        delta = b'"delta": {"content": "%b"}' if asked.chat else b'"text": "%b"'
        self._part = (
            b"data: " + opening.replace(b"%", b"%%")
            + b', "choices": [{"index": 0, ' + delta + b', "logprobs": null, "finish_reason": %b}]'
            + usage.encode() + b"}\n\n"
        )  # fmt: skip

    def part(self, number: int, reason: str = "") -> bytes:
        """Returns the event of one token; with the reason if it is the last."""
        return self._part % (_word(number).encode(), b'"%b"' % reason.encode() if reason else b"null")

    def last(self, usage: Mapping[str, Any]) -> bytes:
        """Returns what ends a stream, with the usage if it was asked for."""
        event = {**self._head, "choices": [], "usage": usage}
        closing = b"data: " + json.dumps(event).encode() + b"\n\n" if self._asked.with_usage else b""
        return closing + b"data: [DONE]\n\n"

    def whole(self, given: int, reason: str, usage: Mapping[str, Any]) -> bytes:
        text = "".join(map(_word, range(given)))
        content = {"message": {"role": "assistant", "content": text}} if self._asked.chat else {"text": text}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": reason}
        return json.dumps({**self._head, "choices": [choice], "usage": usage}).encode()


def usage_of(prompt: int, given: int, cached: int) -> Mapping[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": given,
        "total_tokens": prompt + given,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _word(number: int) -> str:
    return f" {number % 1000}"
