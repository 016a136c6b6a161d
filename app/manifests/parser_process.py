"""The process that reads large inputs: low in priority, limited in memory, and killed without loss.

Run as `python -m app.manifests.parser_process MEMORY_MB SECONDS`; it takes orders of `app.manifests.parsing`.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.manifests.faults import ManifestFault, ManifestsRefused, quote, shown
from app.manifests.limits import InputLimits
from app.manifests.model import API_VERSION, JSON, Key, Manifest
from app.manifests.reader import Document, Media, read
from app.manifests.validate import Examined, examine
from app.worker.orders import take_orders

NICE = 10  # reading a large input yields to the threads that answer requests
OUT_OF_MEMORY = 3  # exit status
GRACE_SECONDS = 10  # beyond the deadline that the parent keeps; this is for when the parent is gone
MANIFESTS_IN_A_MESSAGE = 100  # taking one apart holds the parent's interpreter


@dataclass(frozen=True, slots=True)
class ParseRequest:
    """An order to read an input; the bytes follow it."""

    media: Media
    limits: InputLimits
    source: str
    default_tenant: str
    key: Key | None = None  # the object that the URL names, if it names one


def parse(data: bytes, order: ParseRequest) -> Examined:
    """Returns manifests and faults; raises ManifestsRefused if the bytes cannot be read at all."""
    documents: Sequence[Document] = read(data, order.media, order.limits, order.source)
    disagreements: list[ManifestFault] = []
    if order.key is not None:
        documents, disagreements = complete_from_path(documents, order.key)
    found = examine(documents, default_tenant=order.default_tenant, offline=False)
    return found._replace(faults=disagreements + found.faults)


def main(arguments: Sequence[str]) -> int:
    memory_mb, seconds = int(arguments[0]), float(arguments[1])
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb * 1024**2, memory_mb * 1024**2))
    orders, send = take_orders()
    try:
        for data, order in orders:
            signal.alarm(int(seconds + GRACE_SECONDS))
            _answer(send, data, order)
            signal.alarm(0)
            del data  # while it waits for the next
    except MemoryError:
        return OUT_OF_MEMORY
    return 0


def _answer(send: Callable[[object], None], data: bytes, order: ParseRequest) -> None:
    """Sends lists of manifests, then all the rest with the most memory that this process has had."""
    manifests: list[Manifest] = []
    last: Examined | ManifestsRefused
    try:
        last = parse(data, order)
        manifests, last = last.manifests, last._replace(manifests=[])
    except ManifestsRefused as refused:
        last = refused
    for start in range(0, len(manifests), MANIFESTS_IN_A_MESSAGE):
        send(manifests[start : start + MANIFESTS_IN_A_MESSAGE])
    send((last, _peak_mb()))


def _peak_mb() -> int:
    """Returns the most memory that this process has had; getrusage would include the parent's before exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def complete_from_path(documents: Sequence[Document], key: Key) -> tuple[Sequence[Document], list[ManifestFault]]:
    """Returns the single document of a request, completed by the path of its object, and where they disagree."""
    if len(documents) != 1:
        return [], [ManifestFault("body", "", f"there are {len(documents)} documents", "one document")]
    body = documents[0].value
    metadata = body.get("metadata", {}) if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(metadata, dict):
        return documents, []  # validation reports its type
    known: dict[str, JSON] = {"name": key.name}
    if key.tenant:
        known["tenant"] = key.tenant
    faults = [
        _disagrees(f"metadata.{field}", metadata[field], value)
        for field, value in known.items()
        if field in metadata and metadata[field] != value
    ]
    if "kind" in body and body["kind"] != str(key.kind):
        faults.append(_disagrees("kind", body["kind"], str(key.kind)))
    completed: dict[str, JSON] = {"apiVersion": API_VERSION, "kind": str(key.kind), **body}
    completed["metadata"] = {**metadata, **known}
    return [Document("body", completed)], faults


def _disagrees(field: str, value: JSON, expected: JSON) -> ManifestFault:
    return ManifestFault("body", field, f"{quote(value)} differs from the path", str(expected), shown(value))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
