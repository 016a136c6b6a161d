"""Hooks that are servers: each call is one signed post, and what it answers is read like what a script prints."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from app.control.rent.calls import MOST_READ_BYTES, HookOrder, read_answer
from app.control.rent.states import HookAnswer
from app.control.rent.trusted import HooksRefused, read_trusted
from app.http.posting import LEAST_SECRET, POST_ADDRESS, NotDelivered, is_post_address, make_signed_headers, post

LONGEST_TIMEOUT_SECONDS = 600.0


class WebhookEntry(
    msgspec.Struct, frozen=True, tag_field="kind", tag="webhook", forbid_unknown_fields=True, rename="camel"
):
    """A server as the hooks file names it."""

    url: str
    secret_file: str
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_TIMEOUT_SECONDS)] = 30.0
    ca_file: str = ""
    on_this_machine: bool = False


@dataclass(frozen=True, slots=True)
class PostedHook:
    """Posts the order to a server, which answers with one JSON object."""

    url: str = field(repr=False)
    secret: bytes = field(repr=False)
    timeout_seconds: float
    ca_file: str
    on_this_machine: bool

    def call(self, order: HookOrder) -> HookAnswer:
        who, now = f"the server of hook {order.hook}", int(time.time())
        body = json.dumps(order.document).encode()
        # An answer that something on the way remembers for a key would say for ever that a machine is gone.
        call_id = order.key if order.verb == "rent" else f"{order.key}-return-{now}"
        headers = {
            "Content-Type": "application/json", "Accept": "application/json", "Idempotency-Key": call_id,
            **make_signed_headers(self.secret, call_id, now, body),
        }  # fmt: skip
        try:
            content = post(self, body, headers, seconds=self.timeout_seconds, most_bytes=MOST_READ_BYTES)
        except NotDelivered as failed:
            return HookAnswer("failed", f"{who} gave no answer: {failed}")
        if len(content) > MOST_READ_BYTES:
            return HookAnswer("failed", f"{who} answered with more than {MOST_READ_BYTES >> 10} KiB")
        return read_answer(who, order.verb, content)


def make_posted_hook(entry: WebhookEntry, where: str, owner: int) -> PostedHook:
    """Returns the hook with its secret. Raises HooksRefused, without the address, which may hold a secret too."""
    try:
        is_right = is_post_address(entry.url, entry.on_this_machine)
    except ValueError:
        is_right = False
    if not is_right:
        raise HooksRefused(f"{where}: url must be {POST_ADDRESS}")
    secret = read_trusted(Path(entry.secret_file), f"{where}: secretFile", owner).strip()
    if len(secret) < LEAST_SECRET:
        raise HooksRefused(f"{where}: secretFile must hold at least {LEAST_SECRET} characters")
    if entry.ca_file:
        read_trusted(Path(entry.ca_file), f"{where}: caFile", owner)
    return PostedHook(entry.url, secret, entry.timeout_seconds, entry.ca_file, entry.on_this_machine)
