"""Says in a header of each answer which currency its money is in: bodies hold amounts alone."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.lanes import lane_of

NAME = b"x-currency"


class CurrencyHeader:
    """Lies around the routes. What agents ask and report has no money in it, by whichever way it comes."""

    def __init__(self, app: ASGIApp, currency: str) -> None:
        self._app = app
        self._header = (NAME, currency.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), self._header]
            await send(message)

        has_money = scope["type"] == "http" and not lane_of(scope["method"], scope["path"]).node
        await self._app(scope, receive, send_named if has_money else send)
