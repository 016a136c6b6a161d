"""What a scaler says where something that it needs cannot be reached, or has no token for it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from clusters.plugin_tokens import ONLY_ONE, is_token

LookedAt = Literal["cluster", "ray", "prometheus"]


class LookFailed(Exception):
    """What runs the replicas, or its load, cannot be read now, so that nothing is decided; the message says why."""

    def __init__(self, what: LookedAt, reason: str) -> None:
        super().__init__(reason)
        self.what = what


def read_token(file: Path | None, what: LookedAt) -> str:
    """Returns a bearer token, which may be renewed while we run; its file's fault never repeats it."""
    if not file:
        return ""
    try:
        token = file.read_text(errors="replace").strip()
    except OSError as error:
        raise LookFailed(what, f"its token's file {file} cannot be read: {error.strerror}") from None
    if not is_token(token):
        raise LookFailed(what, f"its token's file {file} does not hold {ONLY_ONE}")
    return token
