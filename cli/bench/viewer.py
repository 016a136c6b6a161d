"""Reads pages as fast as they are answered, over connections of one viewer, until its input ends.

The order comes as JSON on stdin; the answers by path and status go, as JSON, to stdout.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

TIMEOUT_SECONDS = 120.0


def main() -> None:
    order = json.loads(sys.stdin.readline())
    over, counts = threading.Event(), Counter[tuple[str, int]]()
    threads = [
        threading.Thread(target=_read, args=(order, path, headers, counts, over), daemon=True)
        for path, headers in order["reads"].items()
        for _ in range(order["connections"])
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    print(json.dumps([[path, status, count] for (path, status), count in sorted(counts.items())]))


def _read(
    order: Mapping[str, Any], path: str, headers: dict[str, str], counts: Counter[tuple[str, int]],
    over: threading.Event,
) -> None:  # fmt: skip
    connection = http.client.HTTPConnection(order["host"], order["port"], timeout=TIMEOUT_SECONDS)
    while not over.is_set():
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answer.read()
            counts[path, answer.status] += 1
        except (OSError, http.client.HTTPException):
            connection.close()
            counts[path, 0] += 1
            over.wait(0.1)
    connection.close()


if __name__ == "__main__":
    main()
