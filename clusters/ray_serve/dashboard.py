"""Asks Ray's dashboard for its applications, and for other numbers of replicas; failures are sentences."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from clusters.addresses import show_message, show_origin
from clusters.estate import WorkloadName
from clusters.http_answers import AnswerRefused, open_answer, read_body, refuse_page
from clusters.objects import read_field, read_list, read_mapping, read_text, read_whole
from clusters.ray_serve.services import KIND
from clusters.server_dates import read_dates

APPLICATIONS = "api/serve/applications/"
ANSWER_SECONDS = 30.0  # Ray answers from its controller, which may be busy
MOST_BYTES = 64 * 2**20  # of an answer; each replica has half a kilobyte
MOST_ERROR_BYTES = 64 * 1024
NOT_SENT = (ConnectionRefusedError, socket.gaierror)


class RayFailed(Exception):
    """Ray gave no answer, or one that says something else; `is_sent`: it may have got the request."""

    def __init__(self, reason: str, *, is_sent: bool) -> None:
        super().__init__(reason)
        self.is_sent = is_sent


class RayDeployment(NamedTuple):
    """A deployment as Ray shows it."""

    name: WorkloadName
    application_status: str
    status: str
    deployed_at: int  # Unix seconds, of its application; with another code or configuration it is later
    takes_scaling: bool  # by others, as its application allows it
    has_autoscaling: bool
    target: int
    ready: int


class RayReading(NamedTuple):
    """All deployments by name, and when they were read by Ray's clock."""

    deployments: Mapping[WorkloadName, RayDeployment]
    server_time: datetime | None


class ScaleReply(NamedTuple):
    """An answer to a number of replicas."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class RayDashboard:
    """A dashboard by its URL; `token` is sent as a bearer token if there is one. No redirect is followed."""

    url: str
    token: str

    def read(self) -> RayReading:
        status, body, when = self._ask(APPLICATIONS)
        if status != 200:
            remedy = "; name a file in tokenFile with a token that it takes" if status in (401, 403) else ""
            raise RayFailed(f"it answered {status} {_read_error(body)}".rstrip() + remedy, is_sent=True)
        found = read_field(body, "applications")
        if not isinstance(found, Mapping):
            raise RayFailed("its answer has no applications of Ray Serve", is_sent=True)
        deployments = (
            _read(app, name, found[app]) for app in found for name in read_mapping(found[app], "deployments")
        )
        return RayReading({each.name: each for each in deployments}, when)

    def scale(self, name: WorkloadName, replicas: int) -> ScaleReply:
        path = f"api/v1/applications/{quote(name.namespace, safe='')}/deployments/{quote(name.name, safe='')}/scale"
        status, body, _ = self._ask(path, json.dumps({"target_num_replicas": replicas}).encode())
        return ScaleReply(status, f"{status} {_read_error(body)}".rstrip())

    def _ask(self, path: str, data: bytes | None = None) -> tuple[int, Any, datetime | None]:
        headers = {"Content-Type": "application/json"} if data else {}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(f"{self.url}/{path}", data, headers)  # noqa: S310 (http and https alone)
        try:
            with open_answer(request, ANSWER_SECONDS) as answer:
                refuse_page(answer.headers.get_content_type())
                when = next(iter(read_dates(answer.headers.get("Date", ""))), None)
                return answer.status, _parse(read_body(answer, MOST_BYTES, ANSWER_SECONDS)), when
        except AnswerRefused as refused:
            raise RayFailed(str(refused), is_sent=True) from None
        except urllib.error.HTTPError as error:
            if error.code < 400:
                place = show_origin(error.headers.get("Location", "")) or "another path"
                raise RayFailed(f"it redirects to {place}, and redirects are not followed", is_sent=False) from None
            return error.code, _parse(_read_part(error)), None
        except urllib.error.URLError as error:
            is_sent = not isinstance(error.reason, NOT_SENT)
            raise RayFailed(f"it cannot be reached: {error.reason}", is_sent=is_sent) from None
        except http.client.IncompleteRead:
            raise RayFailed("its answer was cut off", is_sent=True) from None
        except http.client.HTTPException:
            raise RayFailed("it hung up, or does not speak HTTP", is_sent=True) from None
        except OSError as error:
            raise RayFailed(f"no answer came: {error}", is_sent=True) from None


def _read_part(error: urllib.error.HTTPError) -> bytes:
    """Returns what an answer says is wrong; nothing where that does not come."""
    with error:
        try:
            return error.read(MOST_ERROR_BYTES)
        except (OSError, http.client.HTTPException):
            return b""


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _read_error(body: Any) -> str:
    return show_message(read_text(body, "error"))


def _read(application: str, name: str, found: Any) -> RayDeployment:
    deployment = read_field(found, "deployments", name)
    states = [read_text(replica, "state") for replica in read_list(deployment, "replicas")]
    deployed = read_field(found, "last_deployed_time_s")
    return RayDeployment(
        WorkloadName(application, KIND, name),
        read_text(found, "status"),
        read_text(deployment, "status"),
        int(deployed) if isinstance(deployed, int | float) and 0 <= deployed < 2**40 else 0,
        read_field(found, "external_scaler_enabled") is True,
        read_field(deployment, "deployment_config", "autoscaling_config") is not None,
        read_whole(deployment, "target_num_replicas") or 0,
        states.count("RUNNING"),
    )
