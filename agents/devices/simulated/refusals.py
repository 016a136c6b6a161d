"""Reasons why a simulated device or its MPS daemon refuses a request, with CUDA's numbers."""

from __future__ import annotations

INVALID_VALUE, OUT_OF_MEMORY, UNAVAILABLE, NO_DEVICE = 1, 2, 46, 100
CANNOT_CONNECT, NOT_READY, TOO_MANY_CLIENTS, TERMINATED = 805, 807, 808, 810


class CudaRefusal(Exception):
    """A process was not admitted, or got no memory; `code` is CUDA's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"CUDA error {code}: {message}")
        self.code = code
        self.message = message
