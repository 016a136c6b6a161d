"""The rate at which a client has to read, with a transport that takes what a test lets it take."""

from __future__ import annotations

import asyncio

import uvicorn

from app.http.connection import Farewell, GuardedConnection
from app.http.floor import ConnectionLimits, Floor

KIB = 1024


class TransportOfReader(asyncio.Transport):
    """A transport whose client reads when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = 0
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unread += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def close(self) -> None:
        """Waits for the reader, as a transport does that has something to write."""


async def no_application(scope: object, receive: object, send: object) -> None:
    """Answers nothing, because no request is sent here."""


async def read_at(rate: int, *, waiting: int, seconds: int, added: int = 0) -> bool:
    """Returns whether a reader of so many bytes a second is cut off; `added` bytes are written each second."""
    limits = ConnectionLimits(write_stall_seconds=30.0, write_floor_bytes=64 * KIB)
    connection = GuardedConnection(
        uvicorn.Config(no_application, log_config=None), Floor(limits), {}, asyncio.get_running_loop()
    )
    transport = TransportOfReader()
    connection.connection_made(transport)
    answer = Farewell(connection, transport)
    answer.write(bytes(waiting))
    now = asyncio.get_running_loop().time()
    for second in range(seconds):
        connection.check(now + second)
        transport.unread = max(0, transport.unread - rate)
        answer.write(bytes(added))
    connection.connection_lost(None)
    return transport.aborted


def cut_off(rate: int, *, waiting: int, seconds: int, added: int = 0) -> bool:
    return asyncio.run(read_at(rate, waiting=waiting, seconds=seconds, added=added))


def test_a_reader_of_nothing_is_cut_off() -> None:
    assert cut_off(0, waiting=10, seconds=60)


def test_case_22_a_reader_of_a_byte_a_second_is_cut_off() -> None:
    assert cut_off(1, waiting=500 * KIB, seconds=60)


def test_a_reader_at_the_least_rate_gets_the_whole_answer() -> None:
    assert not cut_off(3 * KIB, waiting=500 * KIB, seconds=200)


def test_a_slow_reader_that_takes_what_was_waiting_is_not_cut_off() -> None:
    assert not cut_off(KIB, waiting=10 * KIB, seconds=600, added=KIB)
