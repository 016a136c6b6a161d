"""What is known of why a plan had to change, beside what two plans show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ChangeCauses:
    """What a service needs that the plan before did not give, and where nothing may run any more, in words."""

    needs: Mapping[str, str] = field(default_factory=dict)  # by service
    closed: Mapping[str, str] = field(default_factory=dict)  # by GPU: node/index
