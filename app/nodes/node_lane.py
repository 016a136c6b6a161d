"""The database as nodes and gateways reach it: over connections and threads that no other request can occupy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import Connection

from app.access import Principal
from app.store.database.database import Database
from app.tokens import Authenticator

T = TypeVar("T")

THREADS = 4  # all that wait for something new are answered by one read


class NodeLane:
    """Reads and writes for the event loop."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="nodes")

    async def read(self, fn: Callable[[Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.database.read, fn)

    async def write(self, fn: Callable[[Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.database.write, fn)

    async def repeatable(self, fn: Callable[[Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.database.repeatable, fn)

    async def is_current(self, authenticator: Authenticator, who: Principal) -> bool:
        """Returns whether the token is still valid; reads the database only if some token was revoked lately."""
        if authenticator.is_current(who):
            return True
        return await asyncio.get_running_loop().run_in_executor(self._threads, authenticator.live, who)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
