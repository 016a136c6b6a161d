"""A small API behind the real gate and the real server, as a process of its own."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from app.access import Principal, Scope
from app.http import errors, logs, metrics
from app.http.capacity import Capacity
from app.http.floor import ConnectionLimits
from app.http.gate import Gate
from app.http.server import RunningServer, serve
from app.problem import HttpProblem
from app.settings import Settings
from app.store.database.database import Unavailable

CANARY = "canary-0451-do-not-tell"
PRINCIPALS = {
    "admin": Principal("p-admin", Scope.ADMIN),
    "other": Principal("p-other", Scope.ADMIN),
    "viewer": Principal("p-viewer", Scope.VIEWER),
    "tenant": Principal("p-tenant", Scope.OPERATOR, tenant="shop"),
    "node": Principal("p-node", Scope.NODE, node="n1"),
}
TOKENS = {f"Bearer gw_{name.ljust(12, '0')}_{CANARY}": who for name, who in PRINCIPALS.items()}


@cache
def shared() -> bytes:
    """Returns one object for every caller."""
    return b"y" * (10 * 1024 * 1024)


def token(name: str) -> str:
    return f"gw_{name.ljust(12, '0')}_{CANARY}"


def authenticate(header: str | None) -> Principal:
    if header == "Bearer gw_stuck":
        time.sleep(0.2)
    if header in TOKENS:
        return TOKENS[header]
    raise HttpProblem("unauthorized", "this token is unknown", headers={"WWW-Authenticate": "Bearer"})


class Form(BaseModel):
    name: str
    count: int
    token: str = ""


def api() -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    errors.install(app)

    @app.post("/api/v1/apply")
    async def apply(request: Request) -> dict[str, Any]:
        return {"bytes": len(request.state.body), "read": len(await request.body())}

    @app.post("/api/v1/nodes/{name}/report")
    async def report(name: str, request: Request) -> dict[str, Any]:
        return {"bytes": len(request.state.body), "node": name, "who": request.state.principal.id}

    @app.get("/api/v1/nodes/{name}/assignment")
    async def assignment(name: str) -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    @app.get("/api/v1/watch")
    async def watch(kibibytes: int = 0, half: bool = False) -> StreamingResponse:
        async def events() -> AsyncIterator[bytes]:
            if half:
                yield b"one"
                raise RuntimeError("broke off")
            yield b": hello\n\n"
            for _ in range(kibibytes):
                yield b"data: " + b"x" * 1016 + b"\n\n"
            while True:
                await asyncio.sleep(0.05)
                yield b": heartbeat\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    @app.get("/api/v1/services")
    def services(kibibytes: int = 0) -> Response:
        return Response(b"y" * (1024 * kibibytes), media_type="application/json")

    @app.get("/api/v1/tenants")
    def tenants() -> Response:
        return Response(shared(), media_type="application/json")

    @app.get("/api/v1/services/{name}")
    def service(name: str) -> dict[str, str]:
        raise HttpProblem("not-found", f"there is no Service {name}")

    @app.put("/api/v1/services/{name}")
    def put(name: str, form: Form) -> dict[str, str]:
        return {"name": name}

    jobs = APIRouter(prefix="/jobs")

    @jobs.get("/{name}")
    def job(name: str) -> dict[str, str]:
        return {"name": name}

    @jobs.delete("/{name}")
    def delete(name: str) -> dict[str, str]:
        return {"name": name}

    versioned = APIRouter(prefix="/api/v1")
    versioned.include_router(jobs)
    app.include_router(versioned)

    @app.post("/api/v1/join")
    def join(request: Request) -> dict[str, str]:
        raise HttpProblem("conflict", "this join token was used before")

    @app.get("/api/v1/slow")
    def slow(seconds: float) -> dict[str, float]:
        time.sleep(seconds)
        return {"seconds": seconds}

    at_once: list[None] = []

    @app.get("/services/{tenant}/{name}/price")
    def price(tenant: str, name: str, seconds: float = 0.0) -> dict[str, int | str]:
        return heavy(seconds)

    @app.get("/services")
    def page() -> dict[str, str]:
        return {}

    @app.get("/api/v1/slo")
    def heavy(seconds: float = 0.0, kibibytes: int = 0) -> dict[str, int | str]:
        at_once.append(None)
        time.sleep(seconds)
        found = len(at_once)
        at_once.pop()
        return {"at_once": found, "more": "y" * (1024 * kibibytes)}

    @app.get("/api/v1/boom")
    def boom() -> None:
        raise RuntimeError(f"postgresql://u:{CANARY}@db/x {token('admin')} password={CANARY}\r\n\x1b[2J\u202e")

    @app.get("/api/v1/half")
    async def half() -> StreamingResponse:
        async def events() -> AsyncIterator[bytes]:
            yield b"one"
            raise RuntimeError("broke off")

        return StreamingResponse(events())

    @app.get("/api/v1/down")
    def down() -> None:
        raise Unavailable(f"cannot reach postgresql://u:{CANARY}@db/x")

    @app.get("/metrics")
    def scrape(request: Request) -> Response:
        page, media_type = metrics.render(request.headers.get("accept", ""))
        return Response(page, media_type=media_type)

    @app.get("/healthz")
    def health() -> dict[str, Any]:
        return {"pid": os.getpid()}

    return app


def run(options: dict[str, Any], log_path: str, say: Connection) -> None:
    """Serve until stopped; `say` the port, and when `serve` has returned."""
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 2)
    given = {"port": 0, **options.get("settings", {})}
    for name in ("tls_cert", "tls_key"):
        if name in given:
            given[name] = Path(given[name])
    settings = Settings(**given)
    logs.configure(options.get("level", "INFO"), secrets=(f"postgresql://u:{CANARY}@db/x",))
    gate = Gate(
        api(),
        settings=settings,
        authenticate=authenticate,
        admitted=lambda cookie: authenticate(f"Bearer {cookie}"),
        capacity=Capacity(**options.get("capacity", {})),
    )

    def ready(listening: RunningServer) -> None:
        say.send(listening.port)
        if options.get("stop_after"):
            threading.Timer(options["stop_after"], listening.stop).start()

    limits = ConnectionLimits(
        **{"sweep_seconds": 0.05, "write_stall_seconds": settings.write_stall_seconds, **options.get("limits", {})}
    )
    serve(gate, settings, on_ready=ready, limits=limits)
    say.send("returned")
