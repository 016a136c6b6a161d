"""What a worker tells its parent. The parent answers with places of tests in the collection: a file, or none: end."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any

Report = dict[str, Any]  # as pytest serialises it


@dataclass(frozen=True, slots=True)
class Free:
    """The worker wants a file."""


@dataclass(frozen=True, slots=True)
class Began:
    """A test runs, and may take so many seconds."""

    test: int
    patience: float


@dataclass(frozen=True, slots=True)
class Finished:
    """A test ran, with its fixtures."""

    test: int
    reports: list[Report]


@dataclass(frozen=True, slots=True)
class RecordedWarning:
    """A warning that any process can rebuild, whatever object was its message."""

    category: tuple[str, str]
    text: str
    filename: str
    line: int
    when: str
    nodeid: str
    location: tuple[str, int, str] | None

    def arguments(self) -> dict[str, object]:
        """As pytest's hook takes them."""
        module, name = self.category
        category = getattr(sys.modules.get(module), name, UserWarning)
        message = warnings.WarningMessage(self.text, category, self.filename, self.line)
        return {
            "warning_message": message,
            "when": self.when,
            "nodeid": self.nodeid,
            "location": self.location,
        }


@dataclass(frozen=True, slots=True)
class Warned:
    """A test caused a warning."""

    recorded: RecordedWarning


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A test raised KeyboardInterrupt."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker's last fixtures are torn down; reports are of those that could not be."""

    reports: list[Report]


Message = Free | Began | Finished | Warned | Interrupted | Ended
