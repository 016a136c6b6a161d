"""A Lease, which one process at a time holds: the one that may write what several could."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from agents.kubernetes.api import ApiAway, ApiRefused, KubernetesApi

LEASE_SECONDS = 15
RENEW_SECONDS = 3.0
_MISSING, _CONFLICT = 404, 409

log = logging.getLogger(__name__)


class KubernetesLease:
    """One name in a namespace. Not for use by several threads."""

    def __init__(
        self, api: KubernetesApi, name: str, holder: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._name, self.holder = name, holder
        self._list = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"
        self._monotonic = monotonic
        self._seen: tuple[str, float] = ("", 0.0)  # the newest version, and when it came: no other clock is trusted
        self.other = ""  # who holds it, if not this process

    def renew(self) -> bool:
        """Takes the lease, or keeps it; returns whether this process has it. Raises ApiAway where nobody knows."""
        try:
            return self._renew()
        except ApiRefused as refused:
            if refused.status != _CONFLICT:
                raise ApiAway(f"lease {self._name}: {refused}") from refused
            return False  # another one was faster

    def release(self) -> None:
        """Lets the next one begin at once."""
        found = self._api.get(f"{self._list}/{self._name}")
        if (found.get("spec") or {}).get("holderIdentity") == self.holder:
            self._write(str(found["metadata"]["resourceVersion"]), "")

    def _renew(self) -> bool:
        try:
            found = self._api.get(f"{self._list}/{self._name}")
        except ApiRefused as refused:
            if refused.status != _MISSING:
                raise
            made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
            self._api.create(self._list, {**made, "spec": self._spec(self.holder)})
            return True
        version, spec = str(found["metadata"]["resourceVersion"]), found.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        if version != self._seen[0]:
            self._seen = (version, self._monotonic())
        if holder not in ("", self.holder) and self._monotonic() - self._seen[1] < LEASE_SECONDS:
            self.other = holder
            return False
        self._write(version, self.holder)
        self.other = ""
        return True

    def _write(self, version: str, holder: str) -> None:
        self._api.patch(
            f"{self._list}/{self._name}", {"metadata": {"resourceVersion": version}, "spec": self._spec(holder)}
        )

    def _spec(self, holder: str) -> dict[str, object]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": holder, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
