"""What workloads are to keep: SLOs from a file of the user, else from annotations of the workloads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from app.manifests.numbers import finite_number
from clusters.estate import OURS, ClusterWorkload, Estate, WorkloadName
from clusters.measured import USUAL_PERCENTILE, LatencyPromise
from clusters.yaml_text import MOST_SHOWN, YamlRefused, load_yaml, say_outside, show_value

ANNOTATION = re.compile(rf"{OURS}slo-p(?P<percentile>[0-9]{{2}}(?:\.[0-9])?)-ms")
TOKEN_ANNOTATIONS = {"slo-ttft-ms": "ttftMs", "slo-tpot-ms": "tpotMs"}
LEAST_PERCENTILE, MOST_PERCENTILE = 50, 99.9
MOST_MS = 1e12
FIELDS = ("workload", "model", "variant", "latencyMs", "ttftMs", "tpotMs", "percentile")


class PromisesRefused(Exception):
    """A file of SLOs has faults: `faults` has a line for each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(faults[0])
        self.faults = faults


@dataclass(frozen=True, slots=True)
class WorkloadPromise:
    """The SLO of a workload as a Service has it, and the model that it serves; each empty if nobody named it."""

    slo: Mapping[str, float]
    model: str
    variant: str
    source: str

    @property
    def latency(self) -> LatencyPromise | None:
        """Returns the promise as what was measured is compared with it; None without one."""
        if not self.slo:
            return None
        return LatencyPromise(
            self.slo.get("latencyMs"), self.source, self.slo["percentile"], first_token_ms=self.slo.get("ttftMs"),
            token_ms=self.slo.get("tpotMs"),
        )  # fmt: skip


def find_promises(estate: Estate, text: str = "", origin: str = "") -> dict[WorkloadName, WorkloadPromise]:
    """Returns the promise of each workload; what the file says of one takes the place of its annotations.

    PromisesRefused has every fault of the file, a workload that the cluster does not have among them.
    """
    found = {workload.name: _read_annotated(workload) for workload in estate.workloads}
    faults: list[str] = []
    entries: dict[WorkloadName, str] = {}
    for where, entry in _entries(text, origin, faults) if origin else ():
        name = _workload(entry, estate, where, faults)
        slo = _slo(entry, where, faults)
        texts = [entry.get(key, "") for key in ("model", "variant")]
        faults += [f"{where}: there is no field {show_value(key)}" for key in entry if key not in FIELDS]
        faults += [f"{where}: {show_value(each)} is not text" for each in texts if not isinstance(each, str)]
        if name in entries:
            faults.append(f"{where}: {name} has an entry already, {entries[name]}")
        elif name is not None:
            entries[name] = where
            earlier = found[name]
            model, variant = (str(text) for text in texts)
            source = origin if slo else earlier.source
            found[name] = WorkloadPromise(
                slo or earlier.slo, model or earlier.model, variant or earlier.variant, source
            )
    if faults:
        raise PromisesRefused(faults)
    return found


def _entries(text: str, origin: str, faults: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        found = load_yaml(text)
    except YamlRefused as refused:
        faults.append(f"{origin} is not YAML: {refused}")
        return
    if not isinstance(found, list):
        faults.append(f"{origin} is not a list of entries with `workload`")
        return
    for index, entry in enumerate(found):
        if isinstance(entry, dict):
            yield f"{origin}[{index}]", entry
        else:
            faults.append(f"{origin}[{index}] is not a mapping")


def _workload(entry: Mapping[str, Any], estate: Estate, where: str, faults: list[str]) -> WorkloadName | None:
    """Returns the workload that `shop/ranker` or `shop/Deployment/ranker` names."""
    text = entry.get("workload")
    if not isinstance(text, str) or text.count("/") not in (1, 2):
        faults.append(f"{where}: workload {show_value(text)} is not like shop/ranker or shop/Deployment/ranker")
        return None
    known = [each.name for each in estate.workloads]
    found = [name for name in known if text in (str(name), f"{name.namespace}/{name.name}")]
    if len(found) == 1:
        return found[0]
    if found:
        faults.append(f"{where}: {text} is {' and '.join(map(str, found))}; name the kind, too")
        return None
    if len(text) > MOST_SHOWN:
        faults.append(f"{where}: no workload is {show_value(text)}")
        return None
    near = get_close_matches(text, [f"{name.namespace}/{name.name}" for name in known] + [*map(str, known)], n=1)
    faults.append(f"{where}: no workload is {text}" + (f"; did you mean {near[0]}?" if near else ""))
    return None


def _slo(entry: Mapping[str, Any], where: str, faults: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    before = len(faults)
    for key, least, most in (
        ("latencyMs", 0.0, MOST_MS), ("ttftMs", 0.0, MOST_MS), ("tpotMs", 0.0, MOST_MS),
        ("percentile", LEAST_PERCENTILE, MOST_PERCENTILE),
    ):  # fmt: skip
        value = entry.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most or not value:
            faults.append(f"{where}: {key} {say_outside(value, f'{least:g}..{most:g}')}")
        else:
            found[key] = float(value)
    times = found.keys() - {"percentile"}
    if "percentile" in found and not times and len(faults) == before:
        faults.append(f"{where}: a percentile is of latencyMs, or of ttftMs and tpotMs, and neither is given")
    if times and times not in ({"latencyMs"}, {"ttftMs", "tpotMs"}):
        faults.append(f"{where} needs either latencyMs, or ttftMs and tpotMs")
    return {**found, "percentile": found.get("percentile", USUAL_PERCENTILE)} if times else {}


def _read_annotated(workload: ClusterWorkload) -> WorkloadPromise:
    annotations = workload.annotations
    model, variant = (annotations.get(OURS + key, "") for key in ("model", "variant"))
    return WorkloadPromise(read_annotated(annotations), model, variant, f"annotation of {workload.name}")


def read_annotated(annotations: Mapping[str, str]) -> dict[str, float]:
    """Returns the SLO of annotations: `slo-p99-ms`, or `slo-ttft-ms` with `slo-tpot-ms`; empty if there is none."""
    tokens = {
        field: value
        for key, field in TOKEN_ANNOTATIONS.items()
        if (value := read_positive(annotations.get(OURS + key, ""))) is not None
    }
    if len(tokens) == len(TOKEN_ANNOTATIONS):
        return {**tokens, "percentile": USUAL_PERCENTILE}
    for key, text in sorted(annotations.items()):
        match = ANNOTATION.fullmatch(key)
        value = read_positive(text) if match else None
        if match and value is not None and LEAST_PERCENTILE <= float(match["percentile"]) <= MOST_PERCENTILE:
            return {"latencyMs": value, "percentile": float(match["percentile"])}
    return {}


def read_positive(text: str) -> float | None:
    """Returns a time in milliseconds; None if the text states none that can be promised."""
    value = finite_number(text)
    return value if value is not None and 0 < value < MOST_MS else None
