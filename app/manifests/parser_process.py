"""The process that reads large inputs: nice, small, and killed without loss.

Run as `python -m app.manifests.parser_process MEMORY_MB SECONDS`; it speaks frames of pickles on its standard
input and output and ends when its parent does, for then its input ends.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from app.manifests.asked import named
from app.manifests.faults import ManifestFault, ManifestsRefused
from app.manifests.limits import InputLimits
from app.manifests.model import Key, Manifest
from app.manifests.reader import Document, Media, read
from app.manifests.validate import Examined, examine

NICE = 10  # a reader of large inputs waits for everyone who answers requests
OUT_OF_MEMORY = 3  # exit status
GRACE_SECONDS = 10  # beyond the deadline that the parent keeps; this one is for when the parent is gone
IN_ONE_FRAME = 100  # manifests: taking one apart holds the parent's interpreter
HEAD = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class ParseRequest:
    """An order to read an input; the bytes follow in a frame of their own."""

    media: Media
    limits: InputLimits
    source: str
    default_tenant: str
    key: Key | None = None  # the one object that the input is about, where that is known


def parse(data: bytes, order: ParseRequest) -> Examined:
    """Bytes to manifests and faults; what cannot even be read is raised as Refused."""
    documents: Sequence[Document] = read(data, order.media, order.limits, order.source)
    disagreements: list[ManifestFault] = []
    if order.key is not None:
        documents, disagreements = named(documents, order.key)
    found = examine(documents, default_tenant=order.default_tenant, offline=False)
    return found._replace(faults=disagreements + found.faults)


def write_frame(stream: IO[bytes], content: bytes) -> None:
    stream.write(HEAD.pack(len(content)))
    stream.write(content)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes:
    """The next frame; EOFError when the other side is gone."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        raise EOFError
    (length,) = HEAD.unpack(head)
    content = stream.read(length)
    if len(content) < length:
        raise EOFError
    return content


def main(arguments: Sequence[str]) -> int:
    memory_mb, seconds = int(arguments[0]), float(arguments[1])
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb * 1024**2, memory_mb * 1024**2))
    receive, send = sys.stdin.buffer, sys.stdout.buffer
    try:
        while True:
            order: ParseRequest = pickle.loads(read_frame(receive))  # noqa: S301 - from the parent
            signal.alarm(int(seconds + GRACE_SECONDS))
            _answer(send, read_frame(receive), order)
            signal.alarm(0)
    except EOFError:
        return 0
    except MemoryError:
        return OUT_OF_MEMORY


def _answer(send: IO[bytes], data: bytes, order: ParseRequest) -> None:
    """Frames of manifests, then one of all the rest and the most memory this process has had."""
    manifests: list[Manifest] = []
    last: Any
    try:
        last = parse(data, order)
        manifests, last = last.manifests, last._replace(manifests=[])
    except ManifestsRefused as refused:
        last = refused
    for start in range(0, len(manifests), IN_ONE_FRAME):
        write_frame(send, pickle.dumps(manifests[start : start + IN_ONE_FRAME], pickle.HIGHEST_PROTOCOL))
    write_frame(send, pickle.dumps((last, _peak_mb()), pickle.HIGHEST_PROTOCOL))


def _peak_mb() -> int:
    """The most memory this process has had; what getrusage tells is inherited from the parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
