"""The context of a control plane that `gpuwright up` runs: named after its data folder, and gone when it ends.

One that was killed leaves its context behind; the next `up`, on any folder, removes it.
"""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cli.talk.contexts import NAME, config_path, load, save

USUAL_FOLDER, USUAL_NAME = ".gpuwright", "local"
ANSWER_SECONDS = 1.0
BEFORE = "before"  # the field of an entry that only `up` writes
MOST_OF_A_NAME = 63


@dataclass(frozen=True, slots=True)
class LocalContext:
    """A context that was made current; its entry names the one that was current before."""

    name: str
    entry: Mapping[str, str]
    path: Path


def enter(data_dir: Path, entry: Mapping[str, str]) -> LocalContext:
    """Makes the control plane's context current. A context of another one that still answers keeps its name."""
    path = config_path()
    config = load(path)
    _forget_killed(config, entry["server"])
    wanted = name_of(data_dir)
    name, number = wanted, 1
    while _is_of_another(config["contexts"].get(name), entry):
        number += 1
        name = f"{wanted[: MOST_OF_A_NAME - 4]}-{number}"
    before = config["current"] if config["current"] != name else ""
    made = {**entry, BEFORE: before}
    config["contexts"][name], config["current"] = made, name
    save(path, config)
    return LocalContext(name, made, path)


def leave(context: LocalContext) -> None:
    """Removes the context, unless it was changed, and selects the one before if this one is still current."""
    config = load(context.path)
    if config["contexts"].get(context.name) == context.entry:
        _remove(config, context.name)
        save(context.path, config)


def _forget_killed(config: dict[str, Any], server: str) -> None:
    """Removes contexts of an earlier `up` at whose address nothing listens any more, or this `server` does."""
    left = {name: entry for name, entry in config["contexts"].items() if BEFORE in entry}
    for name in [name for name, entry in left.items() if entry.get("server") == server or _is_refused(entry)]:
        _remove(config, name)


def _remove(config: dict[str, Any], name: str) -> None:
    """Removes a context; what came after it goes back to the one before it."""
    before = config["contexts"].pop(name).get(BEFORE, "")
    before = before if before in config["contexts"] else ""
    for entry in config["contexts"].values():
        if entry.get(BEFORE) == name:
            entry[BEFORE] = before
    if config["current"] == name:
        config["current"] = before


def _is_refused(entry: Mapping[str, str]) -> bool:
    parts = urlsplit(entry.get("server", ""))
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), ANSWER_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def name_of(data_dir: Path) -> str:
    """Returns `local` for the usual folder, and otherwise the folder's name in the letters that a context may have."""
    if data_dir.name == USUAL_FOLDER:
        return USUAL_NAME
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", data_dir.name).strip("-._")[:MOST_OF_A_NAME]
    return name if NAME.fullmatch(name) else USUAL_NAME


def _is_of_another(known: Mapping[str, str] | None, entry: Mapping[str, str]) -> bool:
    """Returns whether the context is of another control plane, or of a server that is elsewhere or answers."""
    if known is None or known.get("tokenFile") == entry["tokenFile"]:
        return False
    parts = urlsplit(known.get("server", ""))
    if parts.hostname not in ("127.0.0.1", "localhost", "::1") or not known.get("tokenFile"):
        return True  # a person's own: it may be away for now
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/healthz")
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
