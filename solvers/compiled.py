"""The one door to the compiler: loops compiled with a signature, when their module is first imported, kept on disk.

The compiler's own cache asks only whether the loop's file changed, and would go on with what another file inlined into
it. Here each loop is kept under a key of all that it is made of. A loop that is kept is read when it is first called:
most are called by other loops alone, which hold all they need.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, ParamSpec, TypeVar


@contextmanager
def _left_out(*names: str) -> Iterator[None]:
    """These modules cannot be imported meanwhile, unless they are there already."""
    left = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(left))  # type: ignore[arg-type]
    yield
    for name in left:
        del sys.modules[name]


# A third of the compiler's start is for products of matrices and calls of C, which no loop here has.
with _left_out("cffi", "scipy.linalg.cython_blas"):
    import numba
    import numba.np.arraymath

    from solvers.loop_cache import LoopCache, cache_folder, is_kept
    from solvers.loop_key import KEY, loop_key

P = ParamSpec("P")
R = TypeVar("R")

LOCK = RLock()  # compiling one loop reads others
WAITING: list[tuple[Any, Any]] = []  # loops that are not yet read, and their signatures
BEFORE_COMPILING: list[Callable[[], None]] = []  # called once, when a loop is not kept: compiling takes long


def njit(signature: Any, makes_arrays: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile for this signature alone; nothing is compiled later, inside a decision.

    A loop that makes no arrays may say so: then nobody counts who holds those that it was given. Each of the dozens in
    a named tuple is counted up and down at every call, which takes ten times as long as most small loops.
    """

    def compiled(function: Callable[P, R]) -> Callable[P, R]:
        options: dict[str, Any] = {"_nrt": makes_arrays}
        loop = numba.njit(**options)(function)
        key = vars(loop)[KEY] = loop_key(function, signature, options)
        folder = cache_folder()
        path = folder and folder / f"{function.__module__}.{function.__qualname__}-{key}"
        if path:
            loop._cache = LoopCache(path)
        if path and is_kept(path):
            _read_when_called(loop, signature)
        else:
            _announce()
            _get(loop, signature)
        result: Callable[P, R] = loop
        return result

    return compiled


def read_all() -> None:
    """Read what has been imported and not called, so that no decision in this process waits for it."""
    with LOCK:
        for loop, signature in WAITING:
            _get(loop, signature)
        WAITING.clear()


def before_compiling(announce: Callable[[], None]) -> None:
    """Calls this before the first loop is compiled; never where all loops are kept."""
    BEFORE_COMPILING.append(announce)


def _announce() -> None:
    while BEFORE_COMPILING:
        BEFORE_COMPILING.pop()()


def _read_when_called(loop: Any, signature: Any) -> None:
    """Until it is called, or another loop that calls it is compiled, a kept loop costs nothing."""

    def called(*_: Any, **__: Any) -> Any:
        _get(loop, signature)
        return loop  # it will be called again, with what it was called with

    def compiled_in(args: Any, named: Any) -> Any:
        _get(loop, signature)
        return loop.get_call_template(args, named)

    vars(loop).update(_compile_for_args=called, get_call_template=compiled_in)
    WAITING.append((loop, signature))


def _get(loop: Any, signature: Any) -> None:
    """Read the loop or compile it: with this signature, and no other from then on."""
    with LOCK:
        if not loop.signatures:
            loop.compile(signature)
            loop.disable_compile()
            for late in ("_compile_for_args", "get_call_template"):
                vars(loop).pop(late, None)
