"""Follows and writes the objects of one gateway; whatever is somebody else's stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agents.gateway.cluster.objects import KINDS, ObjectKind, RouteSettings
from agents.kubernetes.api import ApiAway, ApiRefused, KubernetesApi, Object
from agents.kubernetes.following import Follower

_MISSING, _CONFLICT = 404, 409


class ForeignObject(Exception):
    """An object that has the name of one of ours, and is somebody else's."""


class RouteObjects:
    """The only writer of the objects that have its gateway's name as a label."""

    def __init__(self, api: KubernetesApi, settings: RouteSettings) -> None:
        self._api, self._settings = api, settings
        self._followers = {kind: Follower(api, kind.path(settings.namespace), settings.selected) for kind in KINDS}

    def start(self, on_change: Callable[[], None]) -> None:
        for follower in self._followers.values():
            follower.start(on_change)

    def close(self) -> None:
        for follower in self._followers.values():
            follower.close()

    def read(self, kind: ObjectKind) -> Mapping[str, Object]:
        """Returns the objects of a kind as last known; raises ApiAway before the first list."""
        return self._followers[kind].objects()

    def read_all(self) -> Mapping[ObjectKind, Mapping[str, Object]]:
        """Returns all objects; raises ApiAway while they may be out of date."""
        for follower in self._followers.values():
            if follower.away:
                raise ApiAway(follower.away)
        return {kind: follower.objects() for kind, follower in self._followers.items()}

    def put(self, kind: ObjectKind, wanted: Object) -> None:
        """Writes an object as it was last seen here: what others changed since is looked at first."""
        namespace, name = self._settings.namespace, wanted["metadata"]["name"]
        follower = self._followers[kind]
        known = follower.objects().get(name)
        try:
            if known is None:
                follower.note(self._api.create(kind.path(namespace), wanted))
            else:
                read = {"resourceVersion": known["metadata"]["resourceVersion"]}
                changed = {**wanted, "metadata": {**wanted["metadata"], **read}}
                follower.note(self._api.patch(kind.path(namespace, name), changed))
        except ApiRefused as refused:
            if refused.status == _MISSING and known is not None:
                follower.forget(name)
            elif refused.status == _CONFLICT:
                self._adopt(kind, name)
            else:
                raise

    def delete(self, kind: ObjectKind, found: Object) -> None:
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        try:
            self._api.delete(kind.path(self._settings.namespace, name), {"preconditions": {"uid": uid}})
        except ApiRefused as refused:
            if refused.status not in (_MISSING, _CONFLICT):
                raise
        self._followers[kind].forget(name)

    def _adopt(self, kind: ObjectKind, name: str) -> None:
        """Takes note of an object that is there already; raises ForeignObject if it is not ours."""
        found = self._api.get(kind.path(self._settings.namespace, name))
        if not self._settings.owns(found):
            what = f"{kind.name} {self._settings.namespace}/{name}"
            raise ForeignObject(f"{what} is not of gateway {self._settings.gateway}, which leaves it alone")
        self._followers[kind].note(found)
