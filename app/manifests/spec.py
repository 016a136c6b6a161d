"""The base class of all specs: camelCase on the wire, no unknown fields, no conversion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from app.manifests.model import JSON


class Contradiction(NamedTuple):
    """Two fields of one spec that cannot both be right."""

    field: str  # below `spec`, as `memoryGib.8`
    message: str
    allowed: str = ""
    value: JSON = None


class Spec(BaseModel):
    """A mapping of a manifest, read strictly: neither `true` nor "3" is a number."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )

    # Fields that may be null; all others must be left out instead.
    nullable: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def contradictions(cls, spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
        """Yields contradictions between fields, from the raw spec so that they come with all its other faults."""
        yield from ()


def number(value: object) -> float | None:
    """Returns the value if it is a number, for rules that compare fields which may themselves be wrong."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
