"""The file that adopts deployments of Ray Serve, as annotations adopt workloads of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from app.manifests.words import LABEL, WORD, Mode
from clusters.addresses import AddressRefused, check_address
from clusters.decided_bounds import AnnotatedBounds
from clusters.estate import MOST_REPLICAS, WorkloadName
from clusters.measured import USUAL_PERCENTILE
from clusters.promises import LEAST_PERCENTILE, MOST_MS, MOST_PERCENTILE, WorkloadPromise
from clusters.yaml_text import YamlRefused, load_yaml, say_outside, show_value

KIND = "RayDeployment"  # of a workload's name, `text/RayDeployment/Summarizer`: its application is its namespace
MODES: tuple[Mode, ...] = get_args(Mode)
FIELDS = ("dashboard", "tokenFile", "prometheusJob", "deployments")
NEEDED = ("application", "deployment", "service")
NUMBERS = {
    "minReplicas": (1, MOST_REPLICAS),
    "maxReplicas": (1, MOST_REPLICAS),
    "latencyMs": (0.001, MOST_MS),
    "percentile": (LEAST_PERCENTILE, MOST_PERCENTILE),
}
ENTRY_FIELDS = (*NEEDED, "mode", *NUMBERS)
MOST_BYTES = 2**20


class ServicesRefused(Exception):
    """A file of services has faults: `faults` has a sentence for each, with what is allowed."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class RayAdoption:
    """A deployment that is adopted: of which service it is, who decides, between which bounds, and its SLO."""

    name: WorkloadName
    service: str
    mode: Mode
    bounds: AnnotatedBounds
    promise: WorkloadPromise | None


@dataclass(frozen=True, slots=True)
class RayServices:
    """A Ray cluster and the deployments of it that are adopted."""

    dashboard: str
    token_file: Path | None
    job: str  # of Prometheus' scrapes of Ray
    adopted: tuple[RayAdoption, ...]


def read_services(file: Path) -> RayServices:
    """Returns what the file says; ServicesRefused names each of its faults."""
    try:
        with file.open("rb") as opened:
            text = opened.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ServicesRefused([f"{file} is larger than {MOST_BYTES >> 20} MiB"])
        found = load_yaml(text.decode())
    except OSError as error:
        raise ServicesRefused([f"{file} cannot be read: {error.strerror}"]) from None
    except (YamlRefused, UnicodeDecodeError) as error:
        raise ServicesRefused([f"{file} is not YAML: {error}"]) from None
    if not isinstance(found, dict):
        raise ServicesRefused([f"{file} is not a mapping with {', '.join(FIELDS)}"])
    entries = found.get("deployments")
    faults = [f"{file}: {fault}" for fault in _find_faults(found)]
    names: dict[WorkloadName, str] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        where = f"deployments[{index}]"
        faults += [f"{file}: {where}: {fault}" for fault in _find_entry_faults(entry)]
        if isinstance(entry, dict) and (name := _name(entry)) in names:
            faults.append(f"{file}: {where}: {name} has an entry already, {names[name]}")
        elif isinstance(entry, dict):
            names[name] = where
    if faults:
        raise ServicesRefused(faults)
    token_file = found.get("tokenFile")
    return RayServices(
        found["dashboard"].rstrip("/"), Path(token_file) if token_file else None, found.get("prometheusJob", "ray"),
        tuple(sorted((_read_entry(entry, file) for entry in found["deployments"]), key=lambda each: each.name)),
    )  # fmt: skip


def _name(entry: Mapping[str, Any]) -> WorkloadName:
    return WorkloadName(str(entry.get("application")), KIND, str(entry.get("deployment")))


def _read_entry(entry: Mapping[str, Any], file: Path) -> RayAdoption:
    slo = {"percentile": float(entry.get("percentile", USUAL_PERCENTILE))}
    promise = None
    if "latencyMs" in entry:
        promise = WorkloadPromise({**slo, "latencyMs": float(entry["latencyMs"])}, "", "", file.name)
    bounds = AnnotatedBounds(entry.get("minReplicas", 1), entry.get("maxReplicas"))
    return RayAdoption(_name(entry), entry["service"], entry.get("mode", "advisory"), bounds, promise)


def _find_faults(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _name_unknown(found, FIELDS)
    dashboard, token_file = found.get("dashboard"), found.get("tokenFile", "")
    try:
        check_address(dashboard if isinstance(dashboard, str) else "")
    except AddressRefused as refused:
        yield f"dashboard is not the URL of Ray's dashboard, as http://127.0.0.1:8265: {refused}"
    if not isinstance(token_file, str):
        yield f"tokenFile {show_value(token_file)} is not the name of a file"
    if not _is_word(found.get("prometheusJob", "ray")):
        yield f"prometheusJob {show_value(found['prometheusJob'])} is not the name of a job"
    if not isinstance(found.get("deployments"), list):
        yield f"deployments {show_value(found.get('deployments'))} is not a list"


def _find_entry_faults(entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{show_value(entry)} is not a mapping with {', '.join(ENTRY_FIELDS)}"
        return
    yield from _name_unknown(entry, ENTRY_FIELDS)
    for key in ("application", "deployment"):
        if not _is_word(entry.get(key)):
            yield f"{key} {show_value(entry.get(key))} is not 1 to 63 letters, digits, dots, dashes and underscores"
    if not isinstance(entry.get("service"), str) or not re.fullmatch(LABEL, entry["service"]):
        yield f"service {show_value(entry.get('service'))} is not a DNS label"
    if entry.get("mode", "advisory") not in MODES:
        yield f"mode {show_value(entry['mode'])} is not one of {', '.join(MODES)}"
    outside = [key for key in NUMBERS if key in entry and not _is_within(key, entry[key])]
    for key in outside:
        yield f"{key} {say_outside(entry[key], '{:g}..{:g}'.format(*NUMBERS[key]))}"
    if entry.get("mode") == "auto" and "maxReplicas" not in entry:
        yield "mode auto needs maxReplicas: nobody looks at a number before it is written"
    if "percentile" in entry and "latencyMs" not in entry:
        yield "percentile needs latencyMs, the time within which so many percent are answered"
    if not outside and entry.get("minReplicas", 1) > entry.get("maxReplicas", MOST_REPLICAS):
        yield f"minReplicas {entry.get('minReplicas', 1)} is above maxReplicas {entry['maxReplicas']}"


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(WORD, value) is not None


def _is_within(key: str, value: Any) -> bool:
    kinds = int if key.endswith("Replicas") else int | float
    least, most = NUMBERS[key]
    return isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most


def _name_unknown(found: Mapping[str, Any], known: tuple[str, ...]) -> Iterator[str]:
    for key in found:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            yield f"there is no field {show_value(key)}" + (f"; did you mean {near[0]}?" if near else "")
