"""Limits on the input, beyond which it is refused."""

from __future__ import annotations

from dataclasses import dataclass

from app.manifests.faults import ManifestFault, ManifestsRefused


@dataclass(frozen=True, slots=True)
class InputLimits:
    """Limits of an input's size. Everything but a key is a value: a container, a string, a number and so on."""

    max_bytes: int
    max_values: int
    max_depth: int = 64
    max_number_characters: int = 64

    def too_many(self, source: str) -> ManifestsRefused:
        return ManifestsRefused(
            [
                ManifestFault(
                    source,
                    "",
                    f"the input has more than {self.max_values:,} values, aliases written out",
                    allowed=f"at most {self.max_values:,} values",
                )
            ],
            too_large=True,
        )

    def too_deep(self, place: str) -> ManifestsRefused:
        return ManifestsRefused(
            [
                ManifestFault(
                    place,
                    "",
                    f"the input is nested deeper than {self.max_depth} levels",
                    allowed=f"at most {self.max_depth} levels",
                )
            ],
            too_large=True,
        )


OFFLINE = InputLimits(max_bytes=64 * 1024**2, max_values=2_000_000)  # a file that is solved without a server
API = InputLimits(max_bytes=16 * 1024**2, max_values=500_000)  # one `apply`
OBJECT = InputLimits(max_bytes=1024**2, max_values=100_000)  # one object
PATCH = InputLimits(max_bytes=64 * 1024, max_values=5_000)  # read in the request's own thread; a larger change is a put
