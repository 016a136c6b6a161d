"""A client that writes without pause, repeats each request until it is answered, and knows what must be there."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.caller import Caller
from tests.support.server import Reply
from tests.support.world import gpu_type, manifest, model, profile, service

Name = tuple[str, str, str]  # kind, tenant, name
PLURALS = {"Tenant": "tenants", "Model": "models", "Service": "services", "GpuType": "gputypes", "Profile": "profiles"}
HANGS_UP = 0.15  # how often it does not wait for the first answer
SHARED = "shared"  # a model that writer 0 keeps deleting while services of the others come to refer to it


@dataclass
class Writer:
    """Owns its names alone, so what was acknowledged last is what must be there in the end.

    Every object of a write carries the write's key as a label, and every request the key as its request id,
    under which the audit table keeps what the write did.
    """

    number: int
    port: int
    token: str
    seed: int
    stopping: threading.Event
    standing: dict[Name, str] = field(default_factory=dict)  # what is there, and the key that wrote it last
    effects: list[tuple[str, str, str, str, str]] = field(default_factory=list)  # key, verb, and the name
    applies: dict[str, set[Name]] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    replays: int = 0
    surprises: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed * 1000 + self.number)
        self._caller = Caller(self.port, self.token)
        self._count = 0
        self.thread = threading.Thread(target=self._run, name=f"writer-{self.number}", daemon=True)

    @property
    def answered(self) -> int:
        return sum(self.statuses.values())

    def _run(self) -> None:
        moves = [self._put, self._put, self._patch, self._apply, self._delete, self._service_of_shared]
        if self.number == 0:
            moves += [self._shared, self._shared]
        while not self.stopping.is_set():
            self._rng.choice(moves)()
        self._caller.close()

    def _put(self) -> None:
        name = ("Tenant", "", f"w{self.number}-{self._rng.randint(0, 3)}")
        self._write("PUT", name, {"spec": {"limit": {"gpus": self._rng.randint(1, 99)}}})

    def _patch(self) -> None:
        name = ("Tenant", "", f"w{self.number}-{self._rng.randint(0, 3)}")
        if name in self.standing:
            self._write("PATCH", name, {"spec": {"limit": {"gpus": self._rng.randint(1, 99)}}})

    def _delete(self) -> None:
        # Of the service that an apply declared, too: the next apply has it created among updates.
        mine = [name for name in self.standing if name[0] in ("Tenant", "Service")]
        if mine:
            self._write("DELETE", self._rng.choice(mine), None)

    def _service_of_shared(self) -> None:
        name = ("Service", f"t{self.number}", "of-shared")
        self._write("PUT", name, {"spec": service("x", "x", SHARED)["spec"]}, refusals={422})

    def _shared(self) -> None:
        name = ("Model", "", SHARED)
        if name in self.standing:
            self._write("DELETE", name, None, refusals={409})  # while a service refers to it
        else:
            self._write("PUT", name, {"spec": model(SHARED)["spec"]})

    def _apply(self) -> None:
        """Four documents that refer to each other, in one piece."""
        key = self._key()
        own = f"w{self.number}"
        documents: Sequence[dict[str, Any]] = [
            service("applied", f"t{self.number}", own),
            profile(own, own),
            model(own),
            gpu_type(own),
        ]
        for document in documents:
            document["metadata"]["labels"] = {"write": key}
        names = [(d["kind"], d["metadata"].get("tenant", ""), d["metadata"]["name"]) for d in documents]
        reply = self._send("POST", "/api/v1/apply", documents, key)
        if reply.status == 200:
            self.applies[key] = set(names)
            for name in names:
                self._stands(name, key)
        else:
            self.surprises.append(f"apply {key}: {reply.status} {reply.text[:300]}")

    def _write(self, method: str, name: Name, body: Any, refusals: frozenset[int] | set[int] = frozenset()) -> None:
        key = self._key()
        kind, tenant, last = name
        path = "/".join(part for part in ("/api/v1", PLURALS[kind], tenant, last) if part)
        headers = {}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
            body = body | {"metadata": {"labels": {"write": key}}}
        elif method == "PUT":
            body = manifest(kind, last, body["spec"], tenant, write=key)
        reply = self._send(method, path, body, key, headers, hangs_up=not refusals)
        if reply.status in refusals:
            return
        if reply.status not in (200, 201):
            self.surprises.append(f"{method} {path} {key}: {reply.status} {reply.text[:300]}")
        elif method == "DELETE":
            self.standing.pop(name)
            self.effects.append((key, "delete", *name))
        else:
            self._stands(name, key)

    def _stands(self, name: Name, key: str) -> None:
        self.effects.append((key, "update" if name in self.standing else "create", *name))
        self.standing[name] = key

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        key: str,
        headers: dict[str, str] | None = None,
        hangs_up: bool = True,
    ) -> Reply:
        """Sends a request until it is answered, sometimes after one like it whose answer is not awaited.

        A refusal is not kept under its key: the request that is still under way may succeed after it, once another
        writer has changed what it was refused for. Requests that may be refused are therefore sent alone.
        """
        given = {"Idempotency-Key": key, "X-Request-Id": key} | (headers or {})
        if hangs_up and self._rng.random() < HANGS_UP:
            self._caller.drop(method, path, body, given)  # perhaps done, perhaps under way, perhaps never arrived
        reply = self._caller.insist(method, path, body, given)
        self.statuses[reply.status] = self.statuses.get(reply.status, 0) + 1
        self.replays += reply.headers.get("idempotency-replayed") == "true"
        return reply

    def _key(self) -> str:
        self._count += 1
        return f"w{self.number}-{self._count:06d}"
