"""Exit codes of the command line, and the exception that ends a command with one of them."""

from __future__ import annotations

from collections.abc import Iterable

OK = 0
NO = 1
BAD_INPUT = 2
REFUSED = 3
UNSERVED = 3
UNREACHABLE = 4
INTERNAL = 5
INTERRUPTED = 130
BROKEN_PIPE = 141

MEANINGS = (
    (OK, "done; for `diff`, no difference; for `solve`, all is served"),
    (
        NO,
        "the answer is no: `diff` found differences, `verify` broken rules, an object does not exist, "
        "`wait` timed out, `size` confirmed nothing",
    ),
    (BAD_INPUT, "wrong usage, or an input that is invalid (every fault is listed); any error of `diff`"),
    (REFUSED, "the server refused: token (401), rights (403), conflict (409), changed meanwhile (412)"),
    (
        UNSERVED,
        "`solve`: the plan leaves requests unserved and gives the reasons; `size`: the same of all GPUs to rent",
    ),
    (UNREACHABLE, "the server cannot be reached, is overloaded (429, 503) or failed (5xx)"),
    (INTERNAL, "an error in gpuwright itself; `-v` shows where"),
    (INTERRUPTED, "interrupted with Ctrl-C"),
    (BROKEN_PIPE, "the reader of the output stopped, as in `gpuwright get services | head -1`"),
)


class Failed(Exception):
    """Ends the command: the first line names the failure and what to do, the others give details."""

    def __init__(self, message: str, code: int = BAD_INPUT, particulars: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.particulars = tuple(particulars)
