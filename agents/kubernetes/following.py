"""Follows a list of objects by watching it; while the server is away, the list stays as it was last known."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from agents.kubernetes.api import ApiAway, ApiRefused, KubernetesApi, Object

WATCH_SECONDS = 60
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0

log = logging.getLogger(__name__)


class Follower:
    """The objects of one list by name, on a thread of its own."""

    def __init__(self, api: KubernetesApi, path: str, selected: Mapping[str, str]) -> None:
        self._api = api
        self._path = path
        self._selected: dict[str, Any] = dict(selected)
        self._changed = threading.Condition()
        self._objects: dict[str, Object] | None = None
        self._version = ""
        self._on_change: Callable[[], None] = _do_nothing
        self._closed = threading.Event()
        self.away = "the list has not been read yet"  # why it may be out of date; empty when it is not

    def start(self, on_change: Callable[[], None] = lambda: None) -> None:
        """Begins to follow; `on_change` is called after each change."""
        self._on_change = on_change
        threading.Thread(target=self._run, name=f"follow {self._path}", daemon=True).start()

    def close(self) -> None:
        """Follows no further than to the end of the watch that is under way."""
        self._closed.set()

    def objects(self) -> Mapping[str, Object]:
        """Returns the objects as last known; raises ApiAway before the first list."""
        with self._changed:
            if self._objects is None:
                raise ApiAway(self.away)
            return dict(self._objects)

    def note(self, found: Object) -> None:
        """Takes what the server has answered to a write, which the watch brings later."""
        with self._changed:
            objects = dict(self._objects or {})
            if not _is_older(found, objects.get(_name(found))):
                self._objects = objects | {_name(found): found}

    def forget(self, name: str) -> None:
        """Takes it that an object has just been deleted."""
        with self._changed:
            self._objects = {known: found for known, found in (self._objects or {}).items() if known != name}

    def wait(self, is_there: Callable[[Mapping[str, Object]], bool], seconds: float) -> bool:
        """Waits until the objects are as asked, for at most `seconds`; returns whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: self._objects is not None and is_there(self._objects), seconds)

    def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._closed.is_set():
            try:
                if not self._version:
                    self._read_list()
                self._watch()
                self.away = ""  # nothing has changed for a while
                pause = FIRST_PAUSE_SECONDS
                self._closed.wait(pause)  # also where each watch ends at once
            except (ApiAway, ApiRefused) as error:
                if isinstance(error, ApiRefused):
                    self._version = ""  # such as 410: the server has forgotten that version
                self._note_away(str(error))
                self._closed.wait(pause)
                pause = min(LONGEST_PAUSE_SECONDS, pause * 2)
            except Exception:
                log.exception("%s cannot be followed", self._path)
                self._version = ""
                self._closed.wait(LONGEST_PAUSE_SECONDS)

    def _read_list(self) -> None:
        found = self._api.get(self._path, **self._selected)
        objects = {_name(item): item for item in found.get("items") or () if _name(item)}
        version = str((found.get("metadata") or {}).get("resourceVersion", ""))
        self._keep(objects, version)

    def _watch(self) -> None:
        events = self._api.watch(self._path, WATCH_SECONDS, resourceVersion=self._version, **self._selected)
        for kind, found in events:
            if self._closed.is_set():
                return
            if kind == "ERROR":
                raise ApiRefused(int(found.get("code") or 0), str(found.get("message", "")))
            version = str((found.get("metadata") or {}).get("resourceVersion", "")) or self._version
            objects = dict(self._objects or {})
            known = objects.get(_name(found))
            if kind in ("ADDED", "MODIFIED") and not _is_older(found, known):
                objects[_name(found)] = found
            elif kind == "DELETED" and not _is_older(found, known):
                objects.pop(_name(found), None)
            self._keep(objects, version)

    def _keep(self, objects: dict[str, Object], version: str) -> None:
        with self._changed:
            self._objects, self._version = objects, version
            if self.away:
                log.info("%s is followed", self._path)
            self.away = ""
            self._changed.notify_all()
        try:
            self._on_change()
        except Exception:
            log.exception("a change of %s was not acted on", self._path)

    def _note_away(self, why: str) -> None:
        if why != self.away:
            log.warning("%s is not followed, and stays as it was: %s", self._path, why)
        self.away = why


def _name(found: Object) -> str:
    return str((found.get("metadata") or {}).get("name", ""))


def _is_older(found: Object, known: Object | None) -> bool:
    """Returns whether more is known of the object already, from an answer to a write."""
    versions = [str((each.get("metadata") or {}).get("resourceVersion", "")) for each in (found, known or {})]
    return all(map(str.isdigit, versions)) and int(versions[0]) < int(versions[1])


def _do_nothing() -> None:
    """Nobody wants to know."""
