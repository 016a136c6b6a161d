"""What is posted for an event: a CloudEvent, signed as Standard Webhooks do it, or a line for Slack. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass

from app.webhooks.hooks import Webhook

TYPE = "io.gpuwright.event"
SIGNS = {"info": "", "warning": "Warning: ", "alarm": "Alarm: "}
SLACK_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))


@dataclass(frozen=True, slots=True)
class PostedEvent:
    """An event on its way; a repetition of a delivery has the same id."""

    id: int
    at: str
    reason: str
    severity: str
    kind: str
    tenant: str
    name: str
    message: str
    generation: int | None

    @property
    def subject(self) -> str:
        return "/".join(filter(None, (self.kind, self.tenant, self.name)))


def make_request(hook: Webhook, event: PostedEvent, source: str, now: int) -> tuple[bytes, Mapping[str, str]]:
    """Returns body and headers."""
    if hook.form == "slack":
        return json.dumps({"text": _say(event, source)}).encode(), {"Content-Type": "application/json"}
    document = {
        "specversion": "1.0",
        "id": str(event.id),
        "source": source or "gpuwright",
        "type": f"{TYPE}.{event.reason}",
        "time": event.at,
        "subject": event.subject,
        "datacontenttype": "application/json",
        "data": {
            "reason": event.reason,
            "severity": event.severity,
            "kind": event.kind,
            "tenant": event.tenant,
            "name": event.name,
            "message": event.message,
            "generation": event.generation,
        },
    }
    body = json.dumps(document).encode()
    return body, {
        "Content-Type": "application/cloudevents+json",
        "webhook-id": str(event.id),
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{sign(hook.secret, event.id, now, body)}",
    }


def sign(secret: bytes, event_id: int, now: int, body: bytes) -> str:
    """Returns the signature over id, time and body, by which a receiver knows sender and age."""
    signed = b".".join((str(event_id).encode(), str(now).encode(), body))
    return base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()


def _say(event: PostedEvent, source: str) -> str:
    """Returns a line for people; names are hostile, and Slack reads <...> as a link."""
    text = f"{SIGNS.get(event.severity, '')}{event.subject}: {event.message} ({event.reason})"
    for char, escape in SLACK_ESCAPES:
        text = text.replace(char, escape)
    plan = f" <{source}/plans/{event.generation}|plan {event.generation}>" if source and event.generation else ""
    return text + plan
