"""Forms that change something: each carries a token that only a page of the same session holds.

The rights are those of the token that opened the session. What is done is audited under that token, and says that it
came from the console.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar
from urllib.parse import parse_qs

from fastapi import Request
from sqlalchemy import Connection

from app.access import Principal
from app.api import requests
from app.console.visitor import refuse_foreign
from app.problem import HttpProblem
from app.world.write import Actor

T = TypeVar("T")

FIELD = "form"
MOST_FIELDS = 20
LONGEST_MESSAGE = 500


def form_token(who: Principal) -> str:
    """Returns the token of the session's forms: another text each time, so that compressed pages give nothing away."""
    pad = secrets.token_bytes(len(who.form_key))
    return base64.urlsafe_b64encode(pad + _xor(pad, who.form_key)).decode()


def read_form(request: Request, who: Principal) -> Mapping[str, str]:
    """Returns the fields of a form of ours; 403 for one of another site, or without the token of this session."""
    refuse_foreign(request)
    try:
        given = parse_qs(requests.body(request).decode(), max_num_fields=MOST_FIELDS)
    except (UnicodeDecodeError, ValueError):
        raise HttpProblem("bad-request", "The form could not be read.") from None
    fields = {name: values[0].strip() for name, values in given.items()}
    if not _is_own(fields.get(FIELD, ""), who.form_key):
        detail = "This form does not belong to your session. Nothing was changed: load the page again and repeat it."
        raise HttpProblem("forbidden", detail)
    return fields


def read_message(fields: Mapping[str, str]) -> str:
    """Returns the reason that was given, or an empty text."""
    message = fields.get("message", "")
    if len(message) > LONGEST_MESSAGE or (message and not message.isprintable()):
        raise HttpProblem("invalid", f"the reason is at most {LONGEST_MESSAGE} printable characters")
    return message


def actor_of(request: Request, who: Principal) -> Actor:
    """Returns the author of what the form changes: the token that opened the session."""
    by = requests.actor(request)
    return replace(by, principal=replace(who, id=who.account), via=f"from the console, session {who.id}")


def change(request: Request, who: Principal, fn: Callable[[Connection, Actor], T]) -> T:
    """Makes a change in one transaction, and returns what it returns."""
    by = actor_of(request, who)
    return requests.context(request).database.write(lambda connection: fn(connection, by))


def _is_own(text: str, key: bytes) -> bool:
    try:
        raw = base64.urlsafe_b64decode(text.encode("ascii"))
    except (UnicodeEncodeError, binascii.Error):
        return False
    pad, masked = raw[: len(key)], raw[len(key) :]
    return len(key) > 0 and len(masked) == len(key) and hmac.compare_digest(_xor(pad, masked), key)


def _xor(pad: bytes, text: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(pad, text, strict=True))
