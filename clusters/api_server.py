"""Lists the objects of a cluster from its API server, by GET alone; the only module that knows the Kubernetes client.

A list that fails leaves the others alone: it is missing from what is returned, with a sentence that says why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import DEFAULT_KUBECONFIG, SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError

from clusters.estate import UnknownFigure
from clusters.objects import (
    KINDS,
    ClusterObjects,
    KubeObject,
    KubeResource,
    read_field,
    read_list,
    read_text,
    read_whole,
)
from clusters.trimming import trim

PAGE_OBJECTS = 500
REQUEST_SECONDS = 60.0
RESTARTS = 3  # of a list whose continuation has expired
RETRIES = 6  # of one page
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0  # whatever the server asks for

# What lightkube and its parsers raise on a kubeconfig of another shape.
UNUSABLE = (
    ConfigError, OSError, yaml.YAMLError, msgspec.MsgspecError, ValueError, LookupError, TypeError, AttributeError,
)  # fmt: skip

Pause = Callable[[float], None]
Progress = Callable[[str, int, int | None], None]  # kind, objects read, objects left if known


class ClusterUnreachable(Exception):
    """Nothing of the cluster can be read; the message says why and what to do."""


class NotListed(Exception):
    """One list cannot be read: `reason`, and what it takes."""

    def __init__(self, reason: str, remedy: str, *, is_absent: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.remedy, self.is_absent = reason, remedy, is_absent


class ListedPage(NamedTuple):
    """A part of a list, and how to go on."""

    items: list[KubeObject]
    continuation: str
    left: int | None


def choose_cluster(context: str | None, kubeconfig: str | None, environment: Mapping[str, str]) -> SingleConfig:
    """Returns the cluster of the context in the kubeconfig, else of the pod that this process runs in."""
    named = kubeconfig or environment.get("KUBECONFIG") or ""
    paths = [kubeconfig] if kubeconfig else [path for path in named.split(os.pathsep) if path] or [DEFAULT_KUBECONFIG]
    files = [path for path in map(str, paths) if Path(path).expanduser().is_file()]
    if kubeconfig and not files:
        raise ClusterUnreachable(f"there is no kubeconfig {kubeconfig}")
    try:
        if not files and Path(SERVICE_ACCOUNT).is_dir() and not context:
            return _of(KubeConfig.from_service_account(), None)
        configs = [KubeConfig.from_file(path) for path in files]
        config = next((each for each in configs if _has(each, context)), None)
        if config is not None:
            return _of(config, context)
    except (
        ConfigError,
        OSError,
        yaml.YAMLError,
        msgspec.MsgspecError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        raise ClusterUnreachable(f"the kubeconfig cannot be used: {_one_line(error)}") from None
    if not files:
        raise ClusterUnreachable(
            f"there is no kubeconfig ({', '.join(map(str, paths))}), and this process runs in no pod of a cluster; "
            "give one with --kubeconfig, or objects with -f"
        )
    known = sorted({name for each in configs for name in each.contexts})
    wanted = f"no context {context!r}" if context else "no current context"
    raise ClusterUnreachable(f"{', '.join(files)} has {wanted}; it has {', '.join(known) or 'none'}")


def _has(config: KubeConfig, context: str | None) -> bool:
    return context in config.contexts if context else config.current_context in config.contexts


def _of(config: KubeConfig, context: str | None) -> SingleConfig:
    found = config.get(context)
    if found is None:
        raise ConfigError("it names no cluster")
    return found


def read_cluster(config: SingleConfig, pause: Pause, progress: Progress) -> ClusterObjects:
    """Reads every list that an estate is made of, one after the other."""
    lists: dict[str, tuple[KubeObject, ...]] = {}
    unread: list[UnknownFigure] = []
    try:
        client = Client(config, ConnectionParams(timeout=httpx2.Timeout(REQUEST_SECONDS)))
    except (ConfigError, OSError, ValueError) as error:
        raise ClusterUnreachable(f"the kubeconfig cannot be used: {_one_line(error)}") from None
    with client:
        for resource in KINDS:
            try:
                lists[resource.kind] = _read_list(client, resource, pause, progress)
            except NotListed as failed:
                if failed.is_absent:  # such objects do not exist in this cluster
                    lists[resource.kind] = ()
                    continue
                reason = f"{failed.reason}, so it is unknown {resource.needed_for}"
                unread.append(UnknownFigure(f"list of {resource.display_name}", reason, failed.remedy))
    if not any(lists.values()):
        reasons = unread[0] if unread else "it has neither nodes nor pods"
        raise ClusterUnreachable(f"nothing could be read of {_address(config)}: {reasons}")
    return ClusterObjects(lists, tuple(unread))


def _address(config: SingleConfig) -> str:
    """Returns the server's address without what a URL may hold besides."""
    parts = urlsplit(config.cluster.server)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"


def _read_list(
    client: httpx2.Client, resource: KubeResource, pause: Pause, progress: Progress
) -> tuple[KubeObject, ...]:
    absent: NotListed | None = None
    for version in resource.versions:
        path = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
        try:
            return _read_version(client, f"{path}/{resource.plural}", resource, pause, progress)
        except NotListed as failed:
            if not failed.is_absent:
                raise
            absent = failed
    raise absent or NotListed("there is no version of it", "", is_absent=True)


def _read_version(
    client: httpx2.Client, path: str, resource: KubeResource, pause: Pause, progress: Progress
) -> tuple[KubeObject, ...]:
    """Reads a list by pages; one whose continuation has expired is read again from its beginning."""
    for _ in range(RESTARTS):
        found: list[KubeObject] = []
        for page in _pages(client, path, pause):
            if page is None:
                break
            found += filter(None, (trim(resource.kind, item) for item in page.items))
            progress(resource.display_name, len(found), page.left)
        else:
            return tuple(found)
    raise NotListed(
        f"its continuation expired {RESTARTS} times while it was read", "run it again when the cluster changes less"
    )


def _pages(client: httpx2.Client, path: str, pause: Pause) -> Iterator[ListedPage | None]:
    """Yields the pages of a list, or None where the server has forgotten how to go on."""
    continuation = ""
    while True:
        page = _page(client, path, continuation, pause)
        yield page
        if page is None or not page.continuation:
            return
        continuation = page.continuation


def _page(client: httpx2.Client, path: str, continuation: str, pause: Pause) -> ListedPage | None:
    parameters = {"limit": str(PAGE_OBJECTS), **({"continue": continuation} if continuation else {})}
    reason, seconds = "", FIRST_PAUSE_SECONDS
    for attempt in range(RETRIES):
        if attempt:
            pause(seconds)
        try:
            response = client.get(path, params=parameters)
        except ConfigError as error:
            raise NotListed(f"no token: {_one_line(error)}", "sign in to the cluster again") from None
        except (httpx2.HTTPError, OSError) as error:
            reason, seconds = _one_line(error), min(LONGEST_PAUSE_SECONDS, 2.0**attempt)
            if isinstance(error, httpx2.ConnectError):
                break  # nobody is there, or somebody with another certificate
            continue
        if response.status_code == 200:
            return _read_page(response)
        if response.status_code == 410 and continuation:
            return None
        reason = _refusal(response)
        if response.status_code != 429 and response.status_code < 500:
            raise _not_listed(response, reason)
        seconds = _asked_seconds(response, min(LONGEST_PAUSE_SECONDS, 2.0**attempt))
    raise NotListed(f"the server did not answer: {reason}", "try again when it can be reached")


def _read_page(response: httpx2.Response) -> ListedPage:
    try:
        found = response.json()
    except ValueError:
        found = None
    items = read_field(found, "items")
    if not isinstance(items, list):
        raise NotListed(
            "the server answered with something else than a list", "see whether its address is an API server's"
        )
    continuation, left = read_text(found, "metadata", "continue"), read_whole(found, "metadata", "remainingItemCount")
    return ListedPage([item for item in read_list(found, "items") if isinstance(item, dict)], continuation, left)


def _refusal(response: httpx2.Response) -> str:
    try:
        said: Any = response.json()
    except ValueError:
        said = None
    return f"{response.status_code} {read_text(said, 'message') or response.reason_phrase}".strip()


def _not_listed(response: httpx2.Response, reason: str) -> NotListed:
    if response.status_code == 404:
        return NotListed(reason, "", is_absent=True)
    if response.status_code == 401:
        return NotListed(f"the token is expired or unknown ({reason})", "sign in to the cluster again")
    if response.status_code == 403:
        return NotListed(f"it is forbidden ({reason})", "allow `get` and `list` of it")
    return NotListed(f"the server refused it ({reason})", "see the server's log")


def _asked_seconds(response: httpx2.Response, usual: float) -> float:
    asked = read_whole({"seconds": response.headers.get("retry-after", "")}, "seconds")
    return usual if asked is None else min(LONGEST_PAUSE_SECONDS, float(asked))


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
