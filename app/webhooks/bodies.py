"""Writes an event or an entry of the audit as it is sent: as CloudEvent, for Slack, as JSON or by syslog. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from app.http.posting import make_signed_headers
from app.manifests.model import Free
from app.store.world.audit import AuditRow
from app.store.world.objects import rfc3339
from app.webhooks.hooks import Webhook

TYPE = "io.gpuwright"
SIGNS = {"info": "", "warning": "Warning: ", "alarm": "Alarm: "}
SLACK_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
OUTCOMES = {"done": "info", "refused": "warning", "alarm": "alarm"}  # of the audit, as severities
SYSLOG_SEVERITIES = {"info": 6, "warning": 4, "alarm": 1}
SYSLOG_FACILITIES = {"event": 16, "audit": 13}
LONGEST_WORD, LONGEST_HOST = 32, 255  # of MSGID and HOSTNAME, by RFC 5424


@dataclass(frozen=True, slots=True)
class StreamedMessage:
    """An event or an entry of the audit on its way; a repetition of a delivery has the same id."""

    id: str
    stream: str  # event or audit
    at: str
    word: str  # the event's reason, or what was done
    severity: str
    subject: str
    data: Free
    whole: Free  # the data, with what is too long for a line of syslog


def describe_event(delivery_id: int, event: Free) -> StreamedMessage:
    """Returns an event as it was written for its delivery."""
    data = {key: value for key, value in event.items() if key != "at"}
    return StreamedMessage(
        id=str(delivery_id),
        stream="event",
        at=event["at"],
        word=event["reason"],
        severity=event["severity"],
        subject=_spell_subject(event["kind"], event["tenant"], event["name"]),
        data=data,
        whole=data,
    )


def describe_entry(row: AuditRow) -> StreamedMessage:
    """Returns an entry of the audit, in the names that the API gives its fields."""
    data = {
        "id": row["id"],
        "requestId": row["request_id"],
        "principal": row["principal"],
        "scope": row["scope"],
        "principalTenant": row["principal_tenant"],
        "verb": row["verb"],
        "outcome": row["outcome"],
        "kind": row["kind"],
        "tenant": row["tenant"],
        "name": row["name"],
        "detail": row["detail"],
    }
    return StreamedMessage(
        id=f"audit-{row['id']}",
        stream="audit",
        at=rfc3339(row["at"]),
        word=row["verb"],
        severity=OUTCOMES.get(row["outcome"], "info"),
        subject=_spell_subject(row["kind"], row["tenant"], row["name"]),
        data=data,
        whole={**data, "before": row["before"], "after": row["after"]},
    )


def make_request(hook: Webhook, message: StreamedMessage, source: str, now: int) -> tuple[bytes, Mapping[str, str]]:
    """Returns body and headers of a post."""
    if hook.form == "slack":
        return json.dumps({"text": _say(message, source)}).encode(), {"Content-Type": "application/json"}
    document = {
        "specversion": "1.0",
        "id": message.id,
        "source": source or "gpuwright",
        "type": f"{TYPE}.{message.stream}.{message.word}",
        "time": message.at,
        "subject": message.subject,
        "datacontenttype": "application/json",
        "data": message.whole,
    }
    body = json.dumps(document).encode()
    signed = make_signed_headers(hook.secret, message.id, now, body)
    return body, {"Content-Type": "application/cloudevents+json", **signed}


def spell_json_line(message: StreamedMessage) -> bytes:
    """Returns the line of a file of JSON lines."""
    line = {"stream": message.stream, "delivery": message.id, "at": message.at}
    return json.dumps(line | message.whole).encode() + b"\n"


def spell_syslog(message: StreamedMessage, host: str) -> bytes:
    """Returns a message of RFC 5424, whose text is JSON in ASCII: nothing in a name can begin another message."""
    priority = SYSLOG_FACILITIES[message.stream] * 8 + SYSLOG_SEVERITIES[message.severity]
    header = f"<{priority}>1 {message.at} {_fit(host, LONGEST_HOST)} gpuwright - {_fit(message.word, LONGEST_WORD)} -"
    return f"{header} {json.dumps({'delivery': message.id} | message.data)}".encode()


def _fit(text: str, longest: int) -> str:
    """Returns the text as a field of a header, which spaces end."""
    return "".join(char for char in text.replace(" ", "_") if "!" <= char <= "~")[:longest] or "-"


def _spell_subject(*parts: str) -> str:
    return "/".join(filter(None, parts))


def _say(message: StreamedMessage, source: str) -> str:
    """Returns a line for people; names are hostile, and Slack reads <...> as a link."""
    text = f"{SIGNS.get(message.severity, '')}{message.subject}: {message.data['message']} ({message.word})"
    for char, escape in SLACK_ESCAPES:
        text = text.replace(char, escape)
    number = message.data["generation"]
    return text + (f" <{source}/plans/{number}|plan {number}>" if source and number else "")
