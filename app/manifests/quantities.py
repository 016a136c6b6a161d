"""Numbers, names and tables of specs, each with its allowed values."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.manifests.words import LABEL, WORD

LARGEST = 1e12  # of any number in a manifest
MOST_RISK = 0.5  # a share of hours

T = TypeVar("T")


def rule_fault(message: str, allowed: str) -> PydanticCustomError:
    """Returns a fault of one of our rules; its text is not formatted, so braces stay."""
    return PydanticCustomError("gpuwright", "{message}", {"message": message, "allowed": allowed})


def _distinct(items: list[T]) -> list[T]:
    earlier: set[object] = set()
    for item in items:
        known = getattr(item, "name", item)
        if known in earlier:
            raise rule_fault(f"{known} is listed twice", "each once")
        earlier.add(known)
    return items


# Tables are most of a profile: looking up a key costs a quarter of parsing it as a number.
_BATCHES = {str(batch): batch for batch in range(1, 257)}
_SM_PERCENTS = {str(percent): percent for percent in range(1, 101)}


def _batch(key: str) -> int:
    found = _BATCHES.get(key)
    if found is None:
        raise rule_fault("this is not a batch", "a whole number 1..256")
    return found


def _sm_percent(key: str) -> int:
    found = _SM_PERCENTS.get(key)
    if found is None:
        raise rule_fault("this is not an SM%", "a whole number 1..100")
    return found


_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[-+]\d\d:\d\d)", re.ASCII)


def _moment(value: object) -> object:
    if isinstance(value, datetime):
        return value
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        try:
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise rule_fault("this is not a time with a time zone", "RFC 3339, such as 2026-12-01T00:00:00Z")


Name: TypeAlias = Annotated[str, Field(pattern=f"^{LABEL}$", json_schema_extra={"x-allowed": "a DNS label"})]
Word: TypeAlias = Annotated[str, Field(pattern=f"^{WORD}$")]
Positive: TypeAlias = Annotated[float, Field(gt=0, le=LARGEST)]
NotNegative: TypeAlias = Annotated[float, Field(ge=0, le=LARGEST)]
Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Risk: TypeAlias = Annotated[float, Field(gt=0, le=MOST_RISK)]
Exponent: TypeAlias = Annotated[float, Field(ge=0, le=10)]  # beyond this a power overflows
Count: TypeAlias = Annotated[int, Field(ge=1, le=int(LARGEST))]
Priority: TypeAlias = Annotated[int, Field(ge=1, le=1000)]
Moment: TypeAlias = Annotated[datetime, BeforeValidator(_moment)]
Batch: TypeAlias = Annotated[int, BeforeValidator(_batch)]
SmPercent: TypeAlias = Annotated[int, BeforeValidator(_sm_percent)]
Names: TypeAlias = Annotated[list[Name], Field(min_length=1, max_length=10_000), AfterValidator(_distinct)]
Words: TypeAlias = Annotated[list[Word], Field(min_length=1, max_length=1_000), AfterValidator(_distinct)]
Speeds: TypeAlias = Annotated[dict[SmPercent, Positive], Field(min_length=1)]  # SM% -> a second
Purchase: TypeAlias = Literal["owned", "reserved", "onDemand", "spot"]
distinct = AfterValidator(_distinct)
