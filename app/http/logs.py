"""Logs every event of the process as a JSON object on a line of stderr, without secrets."""

from __future__ import annotations

import json
import logging
import sys
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from types import TracebackType
from typing import IO
from urllib.parse import unquote, urlsplit

from app.http.redact import hide, redact


class Clean(str):
    """Text that certainly holds no secret, or has been through `redact`."""

    __slots__ = ()


REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")

# What every LogRecord has; anything else came from `extra` and is part of the event.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_LEVELS = {"WARNING": "warning", "INFO": "info", "DEBUG": "debug", "ERROR": "error", "CRITICAL": "critical"}


class JsonLine(logging.Formatter):
    """Renders a record as one line of ASCII, so that no CR, LF, escape or bidi mark can break out."""

    def format(self, record: logging.LogRecord) -> str:
        try:
            message = record.getMessage()
        except Exception:
            message = str(record.msg)  # a logger called with the wrong arguments still logs its message
        line: dict[str, object] = {
            "time": f"{_second(int(record.created))}.{int(record.created * 1000) % 1000:03d}Z",
            "level": _LEVELS.get(record.levelname, record.levelname.lower()),
            "event": redact(message),
            "logger": record.name,
        }
        request_id = REQUEST_ID.get()
        if request_id:
            line["requestId"] = request_id
        for key, value in record.__dict__.items():
            if key not in _OWN:
                line[key] = _clean(value)
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = redact(self.formatException(record.exc_info))
        elif record.exc_text:
            line["exception"] = redact(record.exc_text)
        if record.stack_info:
            line["stack"] = redact(record.stack_info)
        return _ENCODE(line)


class LogStream(logging.StreamHandler[IO[str]]):
    """Writes lines to a stream. Lines that cannot be written, as on a full disk, are lost; stderr says so once."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(stream)
        self._lost = 0  # lines since the last one that was written

    def emit(self, record: logging.LogRecord) -> None:
        lost = self._lost
        super().emit(record)
        if self._lost == lost:
            self._lost = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging calls it so)
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._lost += 1
        if self._lost == 1 and self.stream is not sys.stderr:
            with suppress(OSError):
                sys.stderr.write(f"gpuwright: cannot write the log: {error.strerror}; its lines are lost meanwhile\n")


def event(logger: logging.Logger, level: int, name: str, fields: Mapping[str, object]) -> None:
    """Does `logger.log(level, name, extra=fields)` without looking up the caller, for frequent events."""
    record = logging.LogRecord(logger.name, level, "", 0, name, None, None)
    record.__dict__.update(fields)
    logger.handle(record)


def configure(level: str = "INFO", *, secrets: tuple[str, ...] = ()) -> None:
    """Sends every logger, warning and uncaught exception of this process through a JSON handler on stderr.

    Removes each of `secrets` wherever it occurs; of a URL, its password.
    """
    for secret in secrets:
        _hide(secret)
    handler = LogStream(sys.stderr)
    handler.setFormatter(JsonLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "sqlalchemy", "apscheduler"):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = True
    # Their INFO lines name every job and every connection; ours name what matters.
    for name in ("apscheduler", "sqlalchemy.engine", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(capture=True)
    warnings.simplefilter("default")
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread


def output() -> IO[str] | None:
    """Returns the file that lines are written to, for a process of ours; None if there is none."""
    for handler in logging.getLogger().handlers:
        with suppress(AttributeError, OSError):
            handler.stream.fileno()  # type: ignore[attr-defined]
            return handler.stream  # type: ignore[attr-defined, no-any-return]
    return None


def _hide(secret: str) -> None:
    if "://" not in secret:
        hide(secret)
        return
    netloc = urlsplit(secret).netloc
    _, _, password = netloc.rpartition("@")[0].partition(":")
    for spelling in (password, unquote(password)):
        hide(spelling)


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _clean(value: object) -> object:
    if value is None or isinstance(value, Clean | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {redact(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(item) for item in value]
    return redact(str(value))


_ENCODE = json.JSONEncoder(default=_clean).encode


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    logging.getLogger("gpuwright").critical("uncaught", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or args.exc_type is SystemExit:
        return
    name = args.thread.name if args.thread else "?"
    exc_info = (args.exc_type, args.exc_value, args.exc_traceback)
    logging.getLogger("gpuwright").critical("uncaught_in_thread", extra={"threadName_": name}, exc_info=exc_info)
