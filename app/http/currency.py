"""Says in a header of each answer which currency its money is in: bodies hold amounts alone."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAME = b"x-currency"


class CurrencyHeader:
    """Lies around the routes; agents' reports and polls, which have no money in them, do not come here."""

    def __init__(self, app: ASGIApp, currency: str) -> None:
        self._app = app
        self._header = (NAME, currency.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), self._header]
            await send(message)

        await self._app(scope, receive, send_named if scope["type"] == "http" else send)
