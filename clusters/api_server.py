"""Lists the objects of a cluster from its API server, by GET alone, and keeps of each what somebody reads.

A list that fails leaves the others alone: it is missing from what is returned, with a sentence that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import httpx2
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError

from clusters.addresses import show_message, show_origin
from clusters.estate import OURS, UnknownFigure
from clusters.kubeconfigs import ClusterUnreachable, connect
from clusters.objects import (
    KINDS,
    ClusterObjects,
    KubeObject,
    KubeResource,
    read_field,
    read_list,
    read_mapping,
    read_text,
    read_whole,
)
from clusters.plugin_tokens import TokenFailed
from clusters.reading.owners import GROUP_LABEL
from clusters.reading.requests import asks_by_claim, read_slots, shares_by_annotation
from clusters.reading.workloads import SCALED
from clusters.server_dates import read_dates

PAGE_OBJECTS = 500
RESTARTS = 3  # of a list whose continuation has expired
RETRIES = 6  # of one page
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0  # whatever the server asks for

Pause = Callable[[float], None]
Progress = Callable[[str, int, int | None], None]  # kind, objects read, objects left if known


class NotListed(Exception):
    """One list cannot be read: `reason`, and what it takes."""

    def __init__(self, reason: str, remedy: str, *, is_absent: bool = False, is_last: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.remedy, self.is_absent = reason, remedy, is_absent
        self.is_last = is_last  # no other list can be read either


class ListedPage(NamedTuple):
    """A part of a list, and how to go on."""

    items: list[KubeObject]
    continuation: str
    left: int | None


def read_cluster(config: SingleConfig, pause: Pause, progress: Progress) -> ClusterObjects:
    """Reads every list that an estate is made of, one after the other, until the server cannot be reached."""
    lists: dict[str, tuple[KubeObject, ...]] = {}
    unread: list[UnknownFigure] = []
    last: NotListed | None = None
    dates: list[datetime] = []
    with connect(config) as client:
        client.event_hooks = {"response": [lambda response: dates.extend(read_dates(response.headers.get("date", "")))]}
        for resource in KINDS:
            try:
                if last:
                    raise last
                lists[resource.kind] = _read_list(client, resource, pause, progress)
            except NotListed as failed:
                if failed.is_absent:  # such objects do not exist in this cluster
                    lists[resource.kind] = ()
                    continue
                last = failed if failed.is_last else None
                reason = f"{failed.reason}, so this is unknown: {resource.needed_for}"
                unread.append(UnknownFigure(f"list of {resource.display_name}", reason, failed.remedy))
    if not any(lists.values()):
        reasons = unread[0] if unread else "it has neither nodes nor pods"
        raise ClusterUnreachable(f"nothing could be read of {show_origin(config.cluster.server)}: {reasons}")
    origin = config.context_name if config.fname else "this cluster"
    return ClusterObjects(lists, tuple(unread), min(dates, default=None), max(dates, default=None), origin)


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
        if not page.items or page.continuation == continuation:
            raise NotListed("the server goes on with its list and adds nothing", "see the server's log")
        continuation = page.continuation


def _page(client: httpx2.Client, path: str, continuation: str, pause: Pause) -> ListedPage | None:
    parameters = {"limit": str(PAGE_OBJECTS), **({"continue": continuation} if continuation else {})}
    reason, seconds = "", FIRST_PAUSE_SECONDS
    for attempt in range(RETRIES):
        if attempt:
            pause(seconds)
        try:
            response = client.get(path, params=parameters)
        except TokenFailed as failed:
            raise NotListed(f"no token: {failed.reason}", failed.remedy, is_last=True) from None
        except httpx2.LocalProtocolError:  # its text repeats the token
            raise NotListed("no header can carry the token", "sign in to the cluster again", is_last=True) from None
        except httpx2.HTTPError as error:  # nobody is there, or somebody with another certificate or protocol
            reason = f"the server did not answer: {_one_line(error)}"
            raise NotListed(reason, "try again when it can be reached", is_last=True) from None
        except (ConfigError, OSError, ValueError):
            raise NotListed("the token's file cannot be read", "sign in to the cluster again", is_last=True) from None
        if response.status_code == 200:
            return _read_page(response)
        if response.status_code == 410 and continuation:
            return None
        reason = _refusal(response)
        if response.status_code != 429 and response.status_code < 500:
            raise _not_listed(response, reason)
        seconds = _read_retry_seconds(response, min(LONGEST_PAUSE_SECONDS, 2.0**attempt))
    raise NotListed(f"the server did not answer: {reason}", "try again when it can be reached")


def _read_page(response: httpx2.Response) -> ListedPage:
    try:
        found = response.json()
    except (ValueError, RecursionError):
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
        status: Any = response.json()
    except (ValueError, RecursionError):
        status = None
    message = show_message(read_text(status, "message") or response.reason_phrase)
    return f"{response.status_code} {message}".strip()


def _not_listed(response: httpx2.Response, reason: str) -> NotListed:
    if response.status_code == 404:
        return NotListed(reason, "", is_absent=True)
    if response.status_code == 401:
        return NotListed(f"the token is expired or unknown ({reason})", "sign in to the cluster again")
    if response.status_code == 403:
        return NotListed(f"it is forbidden ({reason})", "allow `get` and `list` of it")
    return NotListed(f"the server refused it ({reason})", "see the server's log")


def _read_retry_seconds(response: httpx2.Response, usual: float) -> float:
    asked = read_whole({"seconds": response.headers.get("retry-after", "")}, "seconds")
    return usual if asked is None else min(LONGEST_PAUSE_SECONDS, float(asked))


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")


def trim(kind: str, item: KubeObject) -> KubeObject | None:
    """Returns the object without what nobody reads; None for a pod that can hold no GPU."""
    if kind == "Pod" and not _may_matter(item):
        return None
    metadata = {key: value for key, value in read_mapping(item, "metadata").items() if key != "managedFields"}
    if kind in SCALED and any(key.startswith(OURS) for key in read_mapping(metadata, "annotations")):
        metadata["managedFields"] = trim_managers(read_list(item, "metadata", "managedFields"))
    kept = {**item, "kind": kind, "metadata": metadata}
    if kind == "Node":
        kept["status"] = {key: read_field(item, "status", key) for key in ("capacity", "allocatable", "conditions")}
    if kind == "ReplicaSet" and read_list(metadata, "ownerReferences"):
        kept.pop("spec", None)  # its Deployment's is read
    return kept


def _may_matter(pod: KubeObject) -> bool:
    """A leader without GPUs still says to which group its workers belong."""
    spec = read_mapping(pod, "spec")
    if read_slots(spec) or asks_by_claim(spec) or shares_by_annotation(pod):
        return True
    return bool(read_text(pod, "metadata", "labels", GROUP_LABEL))


def trim_managers(entries: list[Any]) -> list[KubeObject]:
    """Returns who wrote what is declared; of the fields, only whether replicas are among them."""
    found: list[KubeObject] = []
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("subresource") == "status":
            continue
        has_replicas = read_field(entry, "fieldsV1", "f:spec", "f:replicas") is not None
        fields: KubeObject = {"f:spec": {"f:replicas": {}}} if has_replicas else {}
        found.append({key: value for key, value in entry.items() if key != "fieldsV1"} | {"fieldsV1": fields})
    return found
