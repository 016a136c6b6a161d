"""What an API server's audit log says of who asked for what."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

READING = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    user: str
    verb: str
    resource: str  # with the subresource, such as deployments/scale; empty where a path was asked for
    namespace: str
    status: int  # 0 as long as there is no answer


@dataclass(frozen=True, slots=True)
class ScaleWritten:
    """A write of replicas that the server has done."""

    user: str
    verb: str
    name: str
    version: str  # that it was for; empty: for any
    after: int  # the version that came of it
    replicas: int
    at: datetime


class Audit:
    """The log. The server writes a request down before it answers: what was answered is in here."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        """Returns a place in the log, from which it can be read later."""
        return self.path.stat().st_size

    def requests(self, user: str, since: int = 0) -> list[Asked]:
        """Returns each request of a user once, with the answer's status where it has been answered."""
        return list({name: asked for name, asked in self._read(since) if asked.user == user}.values())

    def scaled(self, namespace: str, since: int = 0) -> list[ScaleWritten]:
        """Returns the successful writes of replicas through `scale` in a namespace, in their order."""
        found = {}
        with self.path.open("rb") as log:
            log.seek(since)
            for line in log:
                event = json.loads(line)
                of = event.get("objectRef") or {}
                is_scale = (of.get("subresource"), of.get("namespace")) == ("scale", namespace)
                if is_scale and "responseObject" in event and event["responseStatus"]["code"] == 200:
                    found[event["auditID"]] = _written(event)
        return sorted(found.values(), key=lambda written: written.after)

    def verbs(self, user: str, since: int = 0) -> Counter[str]:
        return Counter(asked.verb for asked in self.requests(user, since))

    def writes(self, user: str, since: int = 0) -> list[Asked]:
        """Returns what asked for more than to read; a question about one's own rights writes nothing."""
        asked = self.requests(user, since)
        return [one for one in asked if one.verb not in READING and not one.resource.startswith("self")]

    def _read(self, since: int) -> Iterator[tuple[str, Asked]]:
        with self.path.open("rb") as log:
            log.seek(since)
            for line in log:
                if line.endswith(b"\n"):  # else the server is still writing it
                    event = json.loads(line)
                    yield event["auditID"], _asked(event)


def _written(event: dict[str, Any]) -> ScaleWritten:
    asked, answered = event.get("requestObject") or {}, event["responseObject"]
    return ScaleWritten(
        event["user"]["username"], event["verb"], event["objectRef"]["name"],
        asked.get("metadata", {}).get("resourceVersion", ""), int(answered["metadata"]["resourceVersion"]),
        answered["spec"].get("replicas", 0), datetime.fromisoformat(event["stageTimestamp"]),
    )  # fmt: skip


def _asked(event: dict[str, object]) -> Asked:
    of: dict[str, str] = event.get("objectRef") or {}  # type: ignore[assignment]
    who: dict[str, str] = event["user"]  # type: ignore[assignment]
    answer: dict[str, int] = event.get("responseStatus") or {}  # type: ignore[assignment]
    resource = "/".join(filter(None, (of.get("resource", ""), of.get("subresource", ""))))
    return Asked(who["username"], str(event["verb"]), resource, of.get("namespace", ""), answer.get("code", 0))
