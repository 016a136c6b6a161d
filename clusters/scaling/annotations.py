"""The annotations that adopt a workload: what they may say, and a sentence for each that says something else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from heapq import nsmallest
from itertools import islice
from typing import Any, get_args

from app.manifests.words import LABEL, Mode
from clusters.decided_bounds import MOST, AnnotatedBounds
from clusters.estate import MOST_REPLICAS, OURS
from clusters.promises import ANNOTATION, LEAST_PERCENTILE, MOST_MS, MOST_PERCENTILE, TOKEN_ANNOTATIONS, read_positive
from clusters.scaling.field_writers import LEFT_OUT

MODES: tuple[Mode, ...] = get_args(Mode)
SERVICE, MODE, LEAST = (OURS + key for key in ("service", "mode", "min-replicas"))
NAMES = (SERVICE, OURS + "model", OURS + "variant")
KNOWN = (*NAMES, MODE, LEAST, MOST, LEFT_OUT, *(OURS + key for key in TOKEN_ANNOTATIONS), OURS + "slo-p99-ms")
MOST_CHARACTERS = 63  # of a value; anything that is longer is a fault
MOST_FAULTS = 5  # of a workload that are named
MOST_UNKNOWN = 2  # of its annotations for which the nearest name is looked for
NOT_NAMED = "its annotations have faults; they are named once others of its namespace have none"


@dataclass(frozen=True, slots=True)
class Adoption:
    """What annotations say of a workload: of which service it is, who decides, and between which bounds."""

    service: str  # empty: it names none
    mode: Mode
    bounds: AnnotatedBounds
    faults: tuple[str, ...]  # each names the annotation, its value and what is allowed


def read_adoption(annotations: Mapping[str, Any], *, names_faults: bool = True) -> Adoption | None:
    """Returns what is adopted; None for a workload that annotations leave alone, or only describe.

    Anybody who may annotate a workload may write thousands of annotations, so their faults are named as far as people
    read them; without `names_faults` it says only that there are some.
    """
    ours = {key: value for key, value in annotations.items() if key.startswith(OURS)}
    if not ours.keys() & {SERVICE, MODE, LEAST, MOST}:
        return None
    bounds = AnnotatedBounds(_read_count(ours, LEAST, 0, 1), _read_count(ours, MOST, 1, None))
    mode: Mode = next((mode for mode in MODES if mode == ours.get(MODE)), "advisory")
    service = "" if _find_fault(SERVICE, ours.get(SERVICE)) else str(ours[SERVICE])
    faults = tuple(islice(_find_faults(ours, mode, bounds), MOST_FAULTS if names_faults else 1))
    return Adoption(service, mode, bounds, faults if names_faults or not faults else (NOT_NAMED,))


def _find_faults(ours: Mapping[str, Any], mode: Mode, bounds: AnnotatedBounds) -> Iterator[str]:
    if SERVICE not in ours:
        yield f"{SERVICE} is missing, which names the service that it serves"
    for key in sorted(filter(_is_known, ours)):
        fault = _find_fault(key, ours[key])
        if fault:
            yield fault
    if bounds.most is not None and bounds.least > bounds.most:
        yield f"{LEAST} {bounds.least} is above {MOST} {bounds.most}"
    if mode == "auto" and MOST not in ours:
        yield f"{MODE} auto needs {MOST}: nobody looks at a number before it is written"
    unknown = [key for key in ours if not _is_known(key)]
    for key in nsmallest(MOST_UNKNOWN, unknown):
        near = get_close_matches(key, KNOWN, n=1)
        yield f"{key} is no annotation of ours" + (f"; did you mean {near[0]}?" if near else "")
    if len(unknown) > MOST_UNKNOWN:
        yield f"{len(unknown) - MOST_UNKNOWN} more annotations are not ours either"


def _is_known(key: str) -> bool:
    return key in KNOWN or ANNOTATION.fullmatch(key) is not None


def _find_fault(key: str, value: Any) -> str:
    """Returns the sentence on an annotation that we know; empty if it says what it may."""
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        return f"{key} has {len(value)} characters, more than {MOST_CHARACTERS}"
    if key in NAMES:
        is_name = isinstance(value, str) and re.fullmatch(LABEL, value)
        return "" if is_name else f"{key} {value!r} is not a DNS label"
    if key == MODE:
        return "" if value in MODES else f"{key} {value!r} is not one of {', '.join(MODES)}"
    if key == LEFT_OUT:
        return "" if value in ("true", "false") else f"{key} {value!r} is not one of true, false"
    if key in (LEAST, MOST):
        least = 0 if key == LEAST else 1
        return (
            "" if _read_replicas(value, least) is not None else f"{key} {value!r} is outside {least}..{MOST_REPLICAS}"
        )
    match = ANNOTATION.fullmatch(key)
    if match and not LEAST_PERCENTILE <= float(match["percentile"]) <= MOST_PERCENTILE:
        return f"{key} names a percentile outside {LEAST_PERCENTILE}..{MOST_PERCENTILE}"
    is_time = isinstance(value, str) and read_positive(value) is not None
    return "" if is_time else f"{key} {value!r} is outside 0..{MOST_MS:g}"


def _read_count(ours: Mapping[str, Any], key: str, least: int, usual: Any) -> Any:
    found = _read_replicas(ours.get(key), least)
    return usual if found is None else found


def _read_replicas(value: Any, least: int) -> int | None:
    """Returns a whole number within what is allowed; annotations hold text alone."""
    if not isinstance(value, str) or not re.fullmatch("[0-9]{1,5}", value):
        return None
    return int(value) if least <= int(value) <= MOST_REPLICAS else None
