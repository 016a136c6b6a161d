"""The one door to the compiler: each loop has one signature, and is kept on disk once it is compiled.

The compiler's own cache asks only whether the loop's file changed, and would go on with what another file inlined into
it. Here each loop is kept under a key of all that it is made of. A loop is read, or compiled, when it is first called:
most are called by other loops alone, which hold all they need. Who decides calls `read_all` first, so that no decision
waits for a compiler. `solvers.compiling` compiles many loops at once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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

    from solvers.loop_cache import LoopCache, cache_folder, is_compiled_elsewhere
    from solvers.loop_key import KEY, loop_key

P = ParamSpec("P")
R = TypeVar("R")

LOOK_SECONDS = 0.1
LOCK = RLock()  # compiling one loop reads others
WAITING: list[tuple[Any, Any]] = []  # loops that are not yet read, and their signatures
BEFORE_COMPILING: list[Callable[[], None]] = []  # called once, when a loop is not kept: compiling takes long


def njit(
    signature: Any, *, makes_arrays: bool = False, inner: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile for this signature alone.

    Only a loop that makes arrays counts who holds which array. Each of the dozens in a named tuple would be counted up
    and down at every call, which takes ten times as long as most small loops, and a third of their compiling.
    An inner loop is called by other loops alone. Python cannot call it, which saves a fifth of its compiling.
    """

    def compiled(function: Callable[P, R]) -> Callable[P, R]:
        options: dict[str, Any] = {"_nrt": makes_arrays, "no_cfunc_wrapper": True, "no_cpython_wrapper": inner}
        loop = numba.njit(**options)(function)
        if inner:
            vars(loop)["add_overload"] = partial(_keep_from_python, loop)
        key = vars(loop)[KEY] = loop_key(function, signature, options)
        if folder := cache_folder():
            loop._cache = LoopCache(folder / f"{function.__module__}.{function.__qualname__}-{key}")
        _read_when_called(loop, signature)
        result: Callable[P, R] = loop
        return result

    return compiled


def _keep_from_python(loop: Any, result: Any) -> None:
    """For other loops only: a call from Python finds nothing, where it would jump to a function that is not there."""
    loop.overloads[tuple(result.signature.args)] = result


def read_all(*, waits: bool = True) -> None:
    """Read or compile what has been imported and not called, so that no decision in this process waits for it.

    `solvers.compiling` has all cores for it, and perhaps compiles these very loops now: then wait for it, or leave what
    it has not compiled yet to be read when called.
    """
    folder = cache_folder()
    with LOCK:
        while folder and not all(is_kept(loop) for loop, _ in WAITING) and is_compiled_elsewhere(folder):
            if not waits:
                return
            time.sleep(LOOK_SECONDS)
        for loop, signature in WAITING:
            get(loop, signature)
        WAITING.clear()


def before_compiling(announce: Callable[[], None]) -> None:
    """Call this before the first loop is compiled; never where all loops are kept."""
    BEFORE_COMPILING.append(announce)


def is_kept(loop: Any) -> bool:
    return isinstance(loop._cache, LoopCache) and loop._cache.is_kept()


def _read_when_called(loop: Any, signature: Any) -> None:
    """Until it is called, or another loop that calls it is compiled, a loop costs nothing."""

    def called(*_: Any, **__: Any) -> Any:
        get(loop, signature)
        return loop  # it will be called again, with what it was called with

    def compiled_in(args: Any, named: Any) -> Any:
        get(loop, signature)
        return loop.get_call_template(args, named)

    vars(loop).update(_compile_for_args=called, get_call_template=compiled_in)
    WAITING.append((loop, signature))


def get(loop: Any, signature: Any) -> None:
    """Read the loop or compile it: with this signature, and no other from then on."""
    with LOCK:
        if not loop.signatures:
            while BEFORE_COMPILING and not is_kept(loop):
                BEFORE_COMPILING.pop()()
            loop.compile(signature)
            loop.disable_compile()
            _check_owner(loop)
            for late in ("_compile_for_args", "get_call_template"):
                vars(loop).pop(late, None)


def _check_owner(loop: Any) -> None:
    """An array that is not counted must not be handed out: who holds it would free it under its owner."""
    for signature in loop.nopython_signatures:
        if not loop.targetoptions["_nrt"] and holds_arrays(signature.return_type):
            raise TypeError(f"{loop.py_func.__qualname__} returns arrays: makes_arrays=True")


def holds_arrays(kind: Any) -> bool:
    return isinstance(kind, numba.types.Array) or any(holds_arrays(inner) for inner in getattr(kind, "types", ()))
