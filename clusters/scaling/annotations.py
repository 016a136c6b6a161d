"""The annotations that adopt a workload: what they may say, and a sentence for each that says something else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, get_args

from app.manifests.quantities import LABEL
from clusters.estate import OURS
from clusters.promises import ANNOTATION, LEAST_PERCENTILE, MOST_MS, MOST_PERCENTILE, TOKEN_ANNOTATIONS, read_positive

ScaleMode: TypeAlias = Literal["advisory", "approve", "auto"]
MODES: tuple[ScaleMode, ...] = get_args(ScaleMode)
SERVICE, MODE, LEAST, MOST = (OURS + key for key in ("service", "mode", "min-replicas", "max-replicas"))
NAMES = (SERVICE, OURS + "model", OURS + "variant")
KNOWN = (*NAMES, MODE, LEAST, MOST, *(OURS + key for key in TOKEN_ANNOTATIONS), OURS + "slo-p99-ms")
MOST_REPLICAS = 10_000


@dataclass(frozen=True, slots=True)
class AnnotatedBounds:
    """Between how many replicas a workload is scaled. None has no upper bound, which mode auto refuses."""

    least: int = 1
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Adoption:
    """What annotations say of a workload: of which service it is, who decides, and between which bounds."""

    service: str  # empty: it names none
    mode: ScaleMode
    bounds: AnnotatedBounds
    faults: tuple[str, ...]  # each names the annotation, its value and what is allowed


def read_adoption(annotations: Mapping[str, Any]) -> Adoption | None:
    """Returns what is adopted; None for a workload that annotations leave alone, or only describe."""
    ours = {key: value for key, value in annotations.items() if key.startswith(OURS)}
    if not ours.keys() & {SERVICE, MODE, LEAST, MOST}:
        return None
    bounds = AnnotatedBounds(_count(ours, LEAST, 0, 1), _count(ours, MOST, 1, None))
    mode: ScaleMode = next((mode for mode in MODES if mode == ours.get(MODE)), "advisory")
    service = "" if _fault(SERVICE, ours.get(SERVICE)) else str(ours[SERVICE])
    return Adoption(service, mode, bounds, tuple(_faults(ours, mode, bounds)))


def _faults(ours: Mapping[str, Any], mode: ScaleMode, bounds: AnnotatedBounds) -> Iterator[str]:
    if SERVICE not in ours:
        yield f"{SERVICE} is missing, which names the service that it serves"
    for key, value in sorted(ours.items()):
        fault = _fault(key, value)
        if fault:
            yield fault
    if bounds.most is not None and bounds.least > bounds.most:
        yield f"{LEAST} {bounds.least} is above {MOST} {bounds.most}"
    if mode == "auto" and MOST not in ours:
        yield f"{MODE} auto needs {MOST}: nobody looks at a number before it is written"


def _fault(key: str, value: Any) -> str:
    if key in NAMES:
        is_name = isinstance(value, str) and re.fullmatch(LABEL, value)
        return "" if is_name else f"{key} {value!r} is not a DNS label"
    if key == MODE:
        return "" if value in MODES else f"{key} {value!r} is not one of {', '.join(MODES)}"
    if key in (LEAST, MOST):
        least = 0 if key == LEAST else 1
        return "" if _whole(value, least) is not None else f"{key} {value!r} is outside {least}..{MOST_REPLICAS}"
    match = ANNOTATION.fullmatch(key)
    if match and not LEAST_PERCENTILE <= float(match["percentile"]) <= MOST_PERCENTILE:
        return f"{key} names a percentile outside {LEAST_PERCENTILE}..{MOST_PERCENTILE}"
    if match or key.removeprefix(OURS) in TOKEN_ANNOTATIONS:
        is_time = isinstance(value, str) and read_positive(value) is not None
        return "" if is_time else f"{key} {value!r} is outside 0..{MOST_MS:g}"
    near = get_close_matches(key, KNOWN, n=1)
    return f"{key} is no annotation of ours" + (f"; did you mean {near[0]}?" if near else "")


def _count(ours: Mapping[str, Any], key: str, least: int, usual: Any) -> Any:
    found = _whole(ours.get(key), least)
    return usual if found is None else found


def _whole(value: Any, least: int) -> int | None:
    """Returns a whole number within what is allowed; annotations hold text alone."""
    if not isinstance(value, str) or not re.fullmatch("[0-9]{1,5}", value):
        return None
    return int(value) if least <= int(value) <= MOST_REPLICAS else None
