"""LoRA adapters: those that each copy of a service holds, and what places for them cost a server."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from app.manifests.faults import quote
from app.manifests.quantities import NotNegative, Positive, distinct, rule_fault
from app.manifests.spec import Spec

MOST_ADAPTERS = 256
_PATH = re.compile(r"[A-Za-z0-9_.][-A-Za-z0-9_.]*(/[A-Za-z0-9_.][-A-Za-z0-9_.]*)*")


def _path(value: str) -> str:
    if len(value) > 200 or not _PATH.fullmatch(value) or ".." in value.split("/"):
        raise rule_fault(f"{quote(value)} is not a path inside the folder of models", "adapters/support, for example")
    return value


AdapterName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.]{0,62}$")]


class AdapterSpec(Spec):
    """A LoRA adapter of the service's model, which requests choose by the field `model`."""

    name: AdapterName = Field(description="Name that requests choose it by")
    path: Annotated[str, AfterValidator(_path)] = Field(description="Folder, relative to the nodes' folder of models")
    rank: Annotated[int, Field(ge=1, le=512)] = Field(description="Its rank")


class AdapterPlacesSpec(Spec):
    """The places for LoRA adapters that a server keeps from its start on, and what they cost it."""

    places: Annotated[int, Field(ge=1, le=MOST_ADAPTERS)] = Field(description="How many adapters it holds at most")
    max_rank: Literal[8, 16, 32, 64, 128, 256, 320, 512] = Field(description="The largest rank that fits a place")
    place_gib: Positive = Field(description="Memory that a place takes of each GPU")
    slowdown: NotNegative = Field(0, description="Share by which an iteration is longer while adapters are mixed")


Adapters: TypeAlias = Annotated[list[AdapterSpec], Field(min_length=1, max_length=MOST_ADAPTERS), distinct]
