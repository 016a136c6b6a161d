"""Asks a Prometheus server, or what speaks its API; failures are sentences."""

from __future__ import annotations

import http.client
import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from clusters.addresses import show_message, show_origin
from clusters.http_answers import AnswerRefused, open_answer, read_body, refuse_page
from clusters.objects import read_field, read_list, read_mapping, read_text, read_whole

REQUEST_SECONDS = 150.0  # Prometheus itself gives up after two minutes, and says so
RETRIES = 4
LONGEST_PAUSE_SECONDS = 60.0
MOST_BYTES = 64 * 2**20  # of an answer
MOST_ERROR_BYTES = 64 * 1024  # of one that says what is wrong
BUSY = (429, 502, 503, 504)
GIVE_TOKEN = "give --prometheus-token-file a token that it takes"  # noqa: S105 (it is advice)
GIVE_ADDRESS = "give --prometheus the URL of Prometheus itself, with the prefix of its path if it has one"
REMEDIES = {401: GIVE_TOKEN, 403: GIVE_TOKEN, 404: GIVE_ADDRESS}


class PrometheusFailed(Exception):
    """A query has no answer; the message says why, and `remedy` what to do where that is known.

    `is_last`: no other query will have one either.
    """

    def __init__(self, reason: str, remedy: str = "", *, is_last: bool = False) -> None:
        super().__init__(reason)
        self.remedy, self.is_last = remedy, is_last


class MetricSample(NamedTuple):
    """The labels of a series and its value now."""

    labels: Mapping[str, str]
    value: float


class MetricsSource(Protocol):
    """What answers PromQL."""

    def now(self) -> float:
        """Returns the source's own time, in seconds since 1970."""

    def at(self, query: str, moment: float) -> list[MetricSample]:
        """Returns each series of the query at a moment."""

    def over(self, query: str, ends: Sequence[float], label: str = "") -> dict[str, dict[float, float]]:
        """Returns each series' values, by one of its labels, at moments that are equally far apart."""

    def label_values(self, label: str, selector: str, begin: float, end: float) -> list[str]:
        """Returns what a label says in the series that a selector chooses and that had samples in this time."""


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """A server by its URL; `token` is sent as a bearer token if there is one."""

    url: str
    token: str
    pause: Callable[[float], None]

    def now(self) -> float:
        result = self._ask("query", {"query": "time()"})
        value = _number(result[1] if len(result) == 2 else None)
        if value is None:
            raise PrometheusFailed("it does not tell its time")
        return value

    def at(self, query: str, moment: float) -> list[MetricSample]:
        found = []
        for series in self._ask("query", {"query": query, "time": f"{moment:.3f}"}):
            pair = read_list(series, "value")
            value = _number(pair[1]) if len(pair) == 2 else None
            if value is not None:
                labels = {key: text for key, text in read_mapping(series, "metric").items() if isinstance(text, str)}
                found.append(MetricSample(labels, value))
        return found

    def over(self, query: str, ends: Sequence[float], label: str = "") -> dict[str, dict[float, float]]:
        step = ends[1] - ends[0] if len(ends) > 1 else 1.0
        asked = {"query": query, "start": f"{ends[0]:.3f}", "end": f"{ends[-1]:.3f}", "step": f"{step:.3f}"}
        found: dict[str, dict[float, float]] = {}
        for series in self._ask("query_range", asked):
            values = found.setdefault(read_text(series, "metric", label), {})
            for pair in read_list(series, "values"):
                moment, value = map(_number, pair if isinstance(pair, list) and len(pair) == 2 else (None, None))
                if moment is not None and value is not None:
                    values[moment] = value
        return found

    def label_values(self, label: str, selector: str, begin: float, end: float) -> list[str]:
        asked = {"match[]": selector, "start": f"{begin:.3f}", "end": f"{end:.3f}"}
        return [text for text in self._ask(f"label/{label}/values", asked, "data") if isinstance(text, str)]

    def _ask(self, path: str, parameters: Mapping[str, str], *within: str) -> list[Any]:
        """Returns the list that a whole answer has within these fields."""
        query = urllib.parse.urlencode(parameters, errors="replace")  # names may hold what UTF-8 has not
        url = f"{self.url.rstrip('/')}/api/v1/{path}?{query}"
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 (check_address admits http and https alone)
        asked_seconds: int | None = None
        for attempt in range(RETRIES):
            if attempt:
                seconds = 2.0 ** (attempt - 1) if asked_seconds is None else float(asked_seconds)
                self.pause(min(LONGEST_PAUSE_SECONDS, seconds))
            try:
                with open_answer(request, REQUEST_SECONDS) as answer:
                    refuse_page(answer.headers.get_content_type())
                    found = json.loads(read_body(answer, MOST_BYTES, REQUEST_SECONDS))
                break
            except AnswerRefused as refused:
                raise PrometheusFailed(
                    str(refused), f"{GIVE_TOKEN}, or {GIVE_ADDRESS}" if refused.is_page else ""
                ) from None
            except urllib.error.HTTPError as error:
                if error.code < 400:
                    place = show_origin(error.headers.get("Location", "")) or "another path"
                    remedy = f"give --prometheus the last URL, or, where one signs in there, {GIVE_TOKEN}"
                    raise PrometheusFailed(f"it redirects to {place}", remedy) from None
                kind, message = _read_error(error)
                if error.code not in BUSY or kind == "timeout":
                    remedy = REMEDIES.get(error.code, "")
                    raise PrometheusFailed(f"it answered {error.code} {message}", remedy) from None
                asked_seconds = read_whole({"seconds": error.headers.get("Retry-After")}, "seconds")
            except http.client.IncompleteRead:
                raise PrometheusFailed("its answer was cut off") from None
            except http.client.RemoteDisconnected:
                raise PrometheusFailed("it hung up") from None
            except http.client.HTTPException:
                raise PrometheusFailed("it does not speak HTTP") from None
            except (ValueError, RecursionError):
                raise PrometheusFailed("it answered with something else than JSON", GIVE_ADDRESS) from None
            except OSError as error:
                cause = error.reason if isinstance(error, urllib.error.URLError) else error
                remedy = "see that it runs there, and that its port is forwarded if it is in the cluster"
                raise PrometheusFailed(f"it cannot be reached: {cause}", remedy, is_last=True) from None
        else:
            raise PrometheusFailed("it stays busy")
        return _read_result(found, within or ("data", "result"))


def _read_result(found: Any, within: Sequence[str]) -> list[Any]:
    """Returns the list that a whole answer has. A part of the data would look like a lower load."""
    if read_text(found, "status") != "success":
        raise PrometheusFailed("its answer does not say that it succeeded")
    if read_field(found, "isPartial") is True:  # VictoriaMetrics
        raise PrometheusFailed("it has only a part of the data")
    # Thanos, and Prometheus with remote reads, warn of storage that did not answer. What PromQL itself remarks on a
    # query, such as the name of a counter, leaves nothing out.
    warnings = [str(each) for each in read_list(found, "warnings") if not str(each).startswith("PromQL ")]
    if warnings:
        raise PrometheusFailed(f"it has only a part of the data: {show_message(warnings[0])}")
    result = read_field(found, *within)
    if not isinstance(result, list):
        raise PrometheusFailed("its answer has no list of results")
    return result


def _read_error(error: urllib.error.HTTPError) -> tuple[str, str]:
    """Returns the kind and the message that Prometheus gives, or the status in words."""
    try:
        found = json.loads(error.read(MOST_ERROR_BYTES))
    except (ValueError, RecursionError, OSError, http.client.HTTPException):
        found = None
    return read_text(found, "errorType"), show_message(read_text(found, "error") or error.reason)


def _number(text: Any) -> float | None:
    """Returns a finite number; Prometheus writes NaN where a histogram has no sample."""
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
