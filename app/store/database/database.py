"""Transactions on Postgres: retried when Postgres asks for it, and never applied twice when a connection dies."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from datetime import datetime
from threading import BoundedSemaphore
from typing import Any, TypeAlias, TypeVar, cast

import psycopg
from psycopg import errors as pg
from sqlalchemy import Connection, CursorResult, Row, TextClause, event, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.store.database import guards, simulated
from app.store.database.pool import POOL_WAIT_SECONDS, create_pool

T = TypeVar("T")
SqlRow: TypeAlias = Row[*tuple[Any, ...]]  # its columns are those of its statement

log = logging.getLogger(__name__)

ATTEMPTS = 6
RETRY_SECONDS = 0.02  # doubled at each attempt, with jitter

# Postgres asks clients to retry these.
RETRIED = (pg.SerializationFailure, pg.DeadlockDetected)


def read_row(kind: Callable[..., T], found: CursorResult[*tuple[Any, ...]]) -> T | None:
    """Returns the only row, if there is one, as an object whose fields are the columns of its statement."""
    row = found.one_or_none()
    return None if row is None else kind(*row)


def read_dicts(kind: type[T], found: CursorResult[*tuple[Any, ...]]) -> list[T]:
    """Returns the rows as dictionaries of a type, which names the columns of their statement."""
    return cast(list[T], [dict(row._mapping) for row in found])


class Unavailable(Exception):
    """The database cannot be reached or used right now; try again later."""


class TooSlow(Unavailable):
    """The database ended a statement that took too long: it answers, and may be too busy, or asked for too much."""


class OutcomeUnknown(Unavailable):
    """The connection died at COMMIT, and Postgres cannot tell whether the transaction took effect."""


def statement(name: str, sql: str) -> TextClause:
    """Returns a whole statement, named for what it answers; the name shows in logs, metrics and pg_stat_activity."""
    return text(f"/* {name} */ {sql}").execution_options(statement=name)


# With the last checkpoint: every recovery makes one, so an unchanged checkpoint proves that there was no recovery.
CURRENT_XID = statement(
    "current_xid",
    "SELECT pg_current_xact_id_if_assigned()::text AS id, redo_lsn::text AS checkpoint FROM pg_control_checkpoint()",
)
XID_STATUS = statement(
    "xid_status",
    "SELECT pg_xact_status(CAST(CAST(:xid AS text) AS xid8)) AS status, redo_lsn::text AS checkpoint "
    "FROM pg_control_checkpoint()",
)
# The same from a statement that writes or locks: what it returns has an id in any case.
TRANSACTION_IDENTITY = (
    "CAST(pg_current_xact_id() AS text) AS xid, "
    "(SELECT CAST(redo_lsn AS text) FROM pg_control_checkpoint()) AS checkpoint"
)
LOCAL_GUARDS = statement("guards", guards.OF_TRANSACTION)
TRANSACTION = "transaction"  # the key of a connection's transaction: its id, and the last checkpoint


class Database:
    """A pool of connections and the two ways to use it: read and write.

    `direct` means that there is no pooler in between, so prepared statements and session settings are safe.
    Functions given to read and write may run more than once, so they touch nothing but the connection.
    `moment` gives the time in a simulation, on direct connections; otherwise the database's clock counts.
    At most `writers` write at a time, so that writes which wait for a lock leave connections to reads; 0: no limit.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        writers: int = 0,
        direct: bool = False,
        slow_query_ms: float = 200.0,
        moment: Callable[[], datetime] | None = None,
    ):
        self.direct = direct
        self._moment = moment
        self._writers = BoundedSemaphore(writers or pool_size)
        self.engine = create_pool(url, pool_size=pool_size, direct=direct, slow_query_ms=slow_query_ms)
        self._autocommit = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        if moment is not None:
            event.listen(self.engine, "before_cursor_execute", simulated.give_moment, retval=True)

    def read(self, fn: Callable[[Connection], T]) -> T:
        """Runs `fn` on one consistent snapshot, again if the connection was stale."""
        return self._retry(lambda: self._read_once(fn))

    def write(self, fn: Callable[[Connection], T], *, repeatable: bool = False) -> T:
        """Runs `fn` in one transaction: all of it or nothing, once.

        A `repeatable` function finds what it did before, and runs again when the outcome of its COMMIT is unknown.
        """
        return self._retry(lambda: self._write_once(fn, repeatable))

    def repeatable(self, fn: Callable[[Connection], T]) -> T:
        """Runs `fn`, a single statement in autocommit mode; doing it twice equals doing it once.

        It takes a single round trip, for what is done a hundred times a second.
        """
        return self._retry(lambda: self._repeatable_once(fn))

    def read_simulated_moment(self) -> datetime | None:
        """Returns the simulation's time; None where the database's clock counts."""
        return self._moment() if self._moment else None

    def close(self) -> None:
        self.engine.dispose()

    def _read_once(self, fn: Callable[[Connection], T]) -> T:
        with self.engine.connect() as connection:
            connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                self._guard(connection)
                self._tell_moment(connection)
                return fn(connection)

    def _repeatable_once(self, fn: Callable[[Connection], T]) -> T:
        if not self.direct:  # time limits hold for a transaction there, so it takes one
            with self.engine.begin() as connection:
                self._guard(connection)
                return fn(connection)
        with self._autocommit.connect() as connection:
            self._tell_moment(connection)
            return fn(connection)

    def _guard(self, connection: Connection) -> None:
        """Sets the time limits of this transaction, where a pooler makes those of a session impossible."""
        if not self.direct:
            connection.execute(LOCAL_GUARDS)

    def _tell_moment(self, connection: Connection) -> None:
        """Takes the simulation's time for what this connection runs next."""
        if self._moment is not None:
            simulated.tell_moment(connection, self._moment())

    def _write_once(self, fn: Callable[[Connection], T], repeatable: bool) -> T:
        if not self._writers.acquire(timeout=POOL_WAIT_SECONDS):
            raise Unavailable("every database connection for writes is in use")
        try:
            return self._write_alone(fn, repeatable)
        finally:
            self._writers.release()

    def _write_alone(self, fn: Callable[[Connection], T], repeatable: bool) -> T:
        with self.engine.connect() as connection:
            transaction = connection.begin()
            connection.info.pop(TRANSACTION, None)
            try:
                self._guard(connection)
                self._tell_moment(connection)
                result = fn(connection)
                identity = None if repeatable else _identity(connection)
            except BaseException:
                _quietly(transaction.rollback)
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                if not _lost(error):
                    raise
                connection.invalidate()
                if repeatable or (identity and not self._has_committed(*identity)):
                    raise _NotApplied from error
            return result

    def _has_committed(self, xid: str, checkpoint: str) -> bool:
        """Returns True if a transaction whose COMMIT got no answer took effect.

        Postgres forgets the ids of transactions lost in a crash and assigns them again, so after a recovery
        "committed" may describe another transaction and proves nothing about ours.
        """
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                with self.engine.connect() as connection:
                    status, now = connection.execute(XID_STATUS, {"xid": xid}).one()
            except DBAPIError as error:
                # Postgres refuses an id that it has not assigned yet: it lies in the future.
                status, now = "aborted" if isinstance(error.orig, pg.InvalidParameterValue) else None, ""
            if status == "committed" and now != checkpoint:
                break
            if status in ("committed", "aborted"):
                log.warning("commit_outcome_reread", extra={"xid": xid, "outcome": status})
                return bool(status == "committed")
            time.sleep(0.1)
        raise OutcomeUnknown("the connection to the database was lost at COMMIT; its outcome is unknown")

    def _retry(self, once: Callable[[], T]) -> T:
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            try:
                return once()
            except _NotApplied:
                if last:
                    raise Unavailable("the database keeps dropping connections") from None
            except PoolTimeout as error:
                raise Unavailable("every database connection is in use") from error
            except DBAPIError as error:
                if not (_lost(error) or isinstance(error.orig, RETRIED)) or last:
                    raise translate_error(error) from error
                if _lost(error):
                    self.engine.dispose()  # the whole pool is as stale as this connection was
            time.sleep(RETRY_SECONDS * 2**attempt * (0.5 + random.random()))  # noqa: S311 (jitter)
        raise AssertionError("unreachable")


class _NotApplied(Exception):
    """The transaction did not happen; run it again."""


def note_transaction(connection: Connection, xid: str, checkpoint: str) -> None:
    """Takes the identity of the transaction from a statement that returned it, so that no other asks for it."""
    connection.info[TRANSACTION] = xid, checkpoint


def _identity(connection: Connection) -> tuple[str, str] | None:
    """Returns the id of the transaction and the last checkpoint; None if it has written nothing."""
    noted: tuple[str, str] | None = connection.info.get(TRANSACTION)
    if noted is None:
        xid, checkpoint = connection.execute(CURRENT_XID).one()
        return (xid, checkpoint) if xid is not None else None
    return noted


def translate_error(error: DBAPIError) -> Exception:
    """Returns Unavailable for an error that waiting or freeing space would resolve, else the error itself."""
    match error.orig:
        case pg.DiskFull():
            return Unavailable("the database's disk is full: free some space there")
        case pg.QueryCanceled():
            return TooSlow("a statement exceeded its time limit: the database is too busy, or this asks for too much")
        case pg.LockNotAvailable() | pg.IdleInTransactionSessionTimeout():
            return Unavailable("the database is too busy: a statement exceeded its time limit")
        case pg.TooManyConnections():
            return Unavailable("the database has no connection left")
        case pg.ReadOnlySqlTransaction():
            return Unavailable("the database is read-only")
        case pg.OutOfMemory() | pg.InsufficientResources():
            return Unavailable("the database is out of resources")
    if _lost(error) or isinstance(error.orig, RETRIED):
        return Unavailable("the database cannot be reached")
    return error


def _lost(error: DBAPIError) -> bool:
    """Returns True if the connection failed rather than the statement."""
    if isinstance(error.orig, pg.AdminShutdown | pg.CrashShutdown | pg.CannotConnectNow | pg.ConnectionException):
        return True
    sqlstate = getattr(error.orig, "sqlstate", None)
    return error.connection_invalidated or (
        isinstance(error, OperationalError | InterfaceError)
        and sqlstate is None
        and isinstance(error.orig, psycopg.OperationalError | psycopg.InterfaceError)
    )


def _quietly(rollback: Callable[[], None]) -> None:
    try:
        rollback()
    except DBAPIError:
        log.debug("rollback_failed", exc_info=True)
