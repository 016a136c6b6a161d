"""The process that answers heavy reads, of lower priority than the server that started it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

from app.worker.orders import offer_memory, take_orders

if TYPE_CHECKING:  # imported once the priority is lower
    from starlette.types import ASGIApp, Message, Scope

    from app.http.heavy_reads import ReadAnswer, ReadOrder

NICE = 10

log = logging.getLogger(__name__)


def main() -> None:
    """Answers reads until the server ends."""
    os.nice(NICE)
    offer_memory()
    orders, send = take_orders()

    from app import garbage
    from app.http import logs
    from app.main import assemble

    settings = next(orders, None)
    if settings is None:
        return
    logs.configure(settings.log_level, secrets=settings.secrets())
    # Its lifespan is not run: housekeeping, polls and notices are the server's.
    app = assemble(settings)
    garbage.settle()
    send("ready")
    asyncio.run(_serve(app, orders, send))


async def _serve(app: ASGIApp, orders: Iterator[ReadOrder], send: Callable[[object], None]) -> None:
    loop = asyncio.get_running_loop()

    def take_in() -> None:
        try:
            for order in orders:
                asyncio.run_coroutine_threadsafe(_carry_out(app, order, send), loop)
        finally:
            os._exit(0)  # the server has ended, and needs no answer

    threading.Thread(target=take_in, name="orders", daemon=True).start()
    await asyncio.Event().wait()


async def _carry_out(app: ASGIApp, order: ReadOrder, send: Callable[[object], None]) -> None:
    """Answers an order; without an answer to send there must be no process either, or the server waits for it."""
    try:
        send(await answer(app, order))
    except BaseException:
        log.exception("read_not_answered")
        os._exit(1)


async def answer(app: ASGIApp, order: ReadOrder) -> ReadAnswer:
    """Lets the routes answer an order."""
    from app.http.bodies import replay
    from app.http.heavy_reads import ReadAnswer
    from app.http.logs import REQUEST_ID
    from app.http.visit import route_of

    REQUEST_ID.set(order.request_id)
    state = {"principal": order.principal, "body": b"", "request_id": order.request_id}
    scope: Scope = {**order.scope, "state": state}
    messages: list[Message] = []

    async def keep(message: Message) -> None:
        messages.append(message)

    async def never_leaves() -> NoReturn:
        while True:
            await asyncio.Event().wait()  # whether the caller is still there is the server's to know

    try:
        await app(scope, replay(b"", never_leaves), keep)
    except Exception:  # the routes' own handlers have answered and logged it, unless they failed themselves
        if not messages:
            log.exception("read_failed")
    if not messages:
        return ReadAnswer(order.number)
    headers = tuple((bytes(name), bytes(value)) for name, value in messages[0]["headers"])
    body = b"".join(message.get("body", b"") for message in messages[1:])
    return ReadAnswer(order.number, messages[0]["status"], headers, body, route_of(scope))


if __name__ == "__main__":
    main()
