"""What answers are made of: an answer is a dictionary whose type ends in `Wire`, as its schema is named without it."""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypedDict

from msgspec import Meta

MomentText: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]  # as rfc3339 writes it
Secret: TypeAlias = Annotated[str, Meta(description="The secret, shown this once")]
SEVERITIES = ["info", "warning", "alarm"]  # the worst last
Severity: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": SEVERITIES})]


class PageMetadataWire(TypedDict):
    """The next page of a list; null on the last page."""

    next: str | None


def spell_camel(name: str) -> str:
    """Returns gpuType for gpu_type."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
