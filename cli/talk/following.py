"""Changes as they happen: an event stream that survives lost connections and misses nothing."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cli import exits
from cli.exits import Failed
from cli.talk.client import ApiClient, Unreachable

SILENCE_SECONDS = 25.0  # the server's heartbeat comes every 10 s
AWAY_SECONDS = 300.0  # how long a server may stay away before we give up
LINE_LIMIT = 32 * 2**20


@dataclass(frozen=True, slots=True)
class WatchedChange:
    """One change; `type` is added, modified or deleted, or `heartbeat` with an empty object."""

    version: int
    type: str
    object: dict[str, Any]


def follow(
    client: ApiClient,
    query: Mapping[str, Any],
    version: int | None,
    *,
    deadline: float = float("inf"),
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[WatchedChange]:
    """Events after `version` (None: from now), resumed after a lost connection until `deadline` (monotonic).

    A Refusal with status 410 means that `version` is no longer kept: list again.
    """
    away_since: float | None = None
    tries = 0
    while time.monotonic() < deadline:
        resumed = {**query, "resourceVersion": version}
        silence = max(0.05, min(SILENCE_SECONDS, deadline - time.monotonic()))
        try:
            with client.stream("/api/v1/watch", resumed, silence) as response:
                for event in events(response):
                    away_since, tries = None, 0
                    version = max(version or 0, event.version)
                    yield event
                    if time.monotonic() >= deadline:
                        return
            failure = Unreachable("the stream ended")
        except (Unreachable, OSError, http.client.HTTPException, ValueError) as error:
            failure = error if isinstance(error, Unreachable) else Unreachable(str(error) or "the stream broke")
        now = time.monotonic()
        away_since = now if away_since is None else away_since
        if (failure.refused and version is None) or now - away_since > AWAY_SECONDS:
            raise client.unreachable(failure)
        if now >= deadline:
            return
        tries += 1
        pause = min(5.0, 0.1 * 2.0 ** min(tries, 10)) * (0.5 + os.urandom(1)[0] / 510)
        client.note(f"# {failure}; resume after {version} in {pause:.1f} s")
        sleep(min(pause, max(0.0, deadline - now)))


def events(response: http.client.HTTPResponse) -> Iterator[WatchedChange]:
    """Events and heartbeats of an open stream."""
    number, kind = 0, ""
    data: list[str] = []
    while line := response.readline(LINE_LIMIT):
        if not line.endswith(b"\n"):
            return  # cut off inside a line: not an event
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if not text:
            if kind == "end":  # the server says why it ends the stream: trying again is in vain
                raise Failed(f"the server ended the watch: {_object(''.join(data)).get('reason')}", exits.REFUSED)
            if data:
                yield WatchedChange(number, kind, _object("\n".join(data)))
            kind, data = "", []
        elif name == "id" and value.isdigit():
            number = int(value)
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif not name:  # `: heartbeat 42`
            last = value.split()[-1:] or [""]
            yield WatchedChange(int(last[0]) if last[0].isdigit() else 0, "heartbeat", {})


def _object(data: str) -> dict[str, Any]:
    decoded = json.loads(data)
    found = decoded.get("object", decoded) if isinstance(decoded, dict) else None
    if not isinstance(found, dict):
        raise Failed("the event stream does not come from a gpuwright server", exits.UNREACHABLE)
    return found
