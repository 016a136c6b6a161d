"""What an API server's audit log says of who asked for what."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

READING = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    user: str
    verb: str
    resource: str  # with the subresource, such as deployments/scale; empty where a path was asked for
    namespace: str
    status: int  # 0 as long as there is no answer


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


def _asked(event: dict[str, object]) -> Asked:
    of: dict[str, str] = event.get("objectRef") or {}  # type: ignore[assignment]
    who: dict[str, str] = event["user"]  # type: ignore[assignment]
    answer: dict[str, int] = event.get("responseStatus") or {}  # type: ignore[assignment]
    resource = "/".join(filter(None, (of.get("resource", ""), of.get("subresource", ""))))
    return Asked(who["username"], str(event["verb"]), resource, of.get("namespace", ""), answer.get("code", 0))
