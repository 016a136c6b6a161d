"""Takes node reports past the router: at a thousand per second, routing them costs more than storing them."""

from __future__ import annotations

import re

from app.api.nodes import take_report
from app.context import Context
from app.http.bodies import Receive
from app.http.gate import ASGIApp
from app.http.visit import RouteName, Scope, Send

PATH = re.compile(r"/api/v1/nodes/([^/]{1,200})/report")


ROUTE = RouteName("/api/v1/nodes/{name}/report")


class ReportBypass:
    """Lies between gate and router, and answers node reports itself exactly as their route would."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if path is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = ROUTE
        body = await take_report(self._context, scope, path[1])
        length = str(len(body)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
