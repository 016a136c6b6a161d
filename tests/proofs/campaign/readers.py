"""Reads the API as a tenant's viewer, in this process: what another tenant's names appear in is a violation."""

from __future__ import annotations

import asyncio
from typing import Any

from app import tokens
from app.main import create_app
from app.settings import Settings
from app.store.access import tokens as token_rows
from app.store.database.database import Database

PATHS = (
    "/api/v1/services",
    "/api/v1/jobs",
    "/api/v1/plans/current",
    "/api/v1/events",
    "/api/v1/slo",
    "/api/v1/overview",
    "/api/v1/endpoints",
)


class TenantReader:
    """A viewer of one tenant."""

    def __init__(self, database: Database, database_url: str, tenant: str) -> None:
        new = tokens.new()
        draft = token_rows.TokenDraft(
            id=new.id, secret_hash=new.secret_hash, scope="viewer", tenant=tenant, node="", gateway="",
            created_by="campaign",
        )  # fmt: skip
        database.write(lambda connection: token_rows.insert(connection, draft))
        self._token = new.text
        self._app = create_app(Settings(database_url=database_url, database_direct=True, pool_size=2))

    def read(self, path: str) -> tuple[int, str]:
        """Returns an answer's status and text."""
        return asyncio.run(self._ask(path))

    async def _ask(self, path: str) -> tuple[int, str]:
        parts: list[bytes] = []
        status = 0
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": [(b"authorization", b"Bearer " + self._token.encode()), (b"host", b"campaign")],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
        }  # fmt: skip
        is_sent = False

        async def receive() -> dict[str, Any]:
            nonlocal is_sent
            if is_sent:
                await asyncio.sleep(3600)
            is_sent = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._app(scope, receive, send)  # type: ignore[arg-type]
        return status, b"".join(parts).decode()
