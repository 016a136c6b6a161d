"""A real Prometheus that already has a past: series made up by functions of time, imported as blocks."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.needs import need
from tests.support.patience import until
from tests.support.ports import free_port

SCRAPE_SECONDS = 60


class PastSeries(NamedTuple):
    """A series, whose value is a function of the moment; None where it was not scraped."""

    name: str
    labels: Mapping[str, str]
    value: Callable[[float], float | None]


def counting(per_second: float, begins: float = 0.0) -> Callable[[float], float | None]:
    """A counter that grows by so much a second, since a moment."""
    return lambda moment: None if moment < begins else per_second * (moment - begins)


def buckets(
    name: str, labels: Mapping[str, str], per_second: float, bounds: Mapping[str, float]
) -> Iterator[PastSeries]:
    """A histogram of requests at a rate, with the part of them below each bound."""
    for bound, part in {**bounds, "+Inf": 1.0}.items():
        yield PastSeries(f"{name}_bucket", {**labels, "le": bound}, counting(per_second * part))


def steady(value: float) -> Callable[[float], float | None]:
    return lambda _: value


@contextmanager
def prometheus_with(
    series: Iterable[PastSeries], folder: Path, start: float, stop: float, scraped: Mapping[str, int] | None = None
) -> Iterator[str]:
    """Yields the URL of a Prometheus that has seen the series from `start` to `stop`."""
    file = folder / "past.txt"
    with file.open("w") as text:
        text.writelines(_lines(series, start, stop))
        text.write("# EOF\n")
    command = [
        need("promtool", "prometheus"), "tsdb", "create-blocks-from", "--max-block-duration=1000h", "openmetrics",
        str(file), str(folder / "data"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with prometheus_over(folder, scraped) as url:
        yield url


@contextmanager
def prometheus_over(folder: Path, scraped: Mapping[str, int] | None = None, *options: str) -> Iterator[str]:
    """Yields the URL of a Prometheus over the data in a folder; it scrapes the ports of these jobs, each second."""
    jobs = [
        {"job_name": job, "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for job, port in (scraped or {}).items()
    ]
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (folder / "prometheus.log").open("ab") as log:
        process = subprocess.Popen(
            [
                need("prometheus", "prometheus"), f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}",
                # Blocks as they are: none is compacted while somebody measures.
                "--storage.tsdb.retention.time=100d", "--storage.tsdb.max-block-duration=6h", "--web.enable-admin-api",
                *options,
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        until(lambda: _is_ready(url), f"Prometheus is not ready, see {folder}/prometheus.log")
        yield url
    finally:
        process.kill()
        process.wait()


def _lines(series: Iterable[PastSeries], start: float, stop: float) -> Iterator[str]:
    known: set[str] = set()
    for name, labels, value in sorted(series, key=lambda each: each.name):
        if name not in known:
            known.add(name)
            yield f"# TYPE {name} unknown\n"
        text = ",".join(f'{key}="{entry}"' for key, entry in labels.items())
        moment = start
        while moment <= stop:
            found = value(moment)
            if found is not None:
                yield f"{name}{{{text}}} {found:.17g} {moment:.0f}\n"
            moment += SCRAPE_SECONDS


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False
