"""Compiles loops, the only way to the compiler: each loop has one signature and is cached on disk once compiled.

The compiler's own cache checks only whether the loop's own file changed, so it would keep stale code inlined from
another file. Here the cache key covers everything the loop is made of. A loop is loaded or compiled when it is first
called; most loops are called only by other loops, which already contain them. A process that makes decisions calls
`read_all` first, so that no decision waits for the compiler. `solvers.compiling` compiles many loops at once.
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
def _block_modules(*names: str) -> Iterator[None]:
    """Blocks the import of these modules for a while, except those already imported."""
    blocked = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(blocked))  # type: ignore[arg-type]
    yield
    for name in blocked:
        del sys.modules[name]


# A third of the compiler's start-up serves matrix products and calls into C, which no loop here uses.
with _block_modules("cffi", "scipy.linalg.cython_blas"):
    import numba
    import numba.np.arraymath

    from solvers.loop_cache import LoopCache, cache_folder, is_compiled_elsewhere
    from solvers.loop_key import KEY, loop_key

P = ParamSpec("P")
R = TypeVar("R")

LOOK_SECONDS = 0.1
LOCK = RLock()  # compiling one loop reads others
WAITING: list[tuple[Any, Any]] = []  # loops that are not loaded yet, and their signatures
BEFORE_COMPILING: list[Callable[[], None]] = []  # called once, before the first compilation, which takes long


def njit(
    signature: Any, *, makes_arrays: bool = False, inner: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compiles the function for this signature alone.

    Only a loop that makes arrays counts references to arrays. Counting each of the dozens of arrays in a named tuple
    up and down at every call takes ten times as long as most small loops, and a third of their compile time.
    An inner loop is called only by other loops. Python cannot call it, which saves a fifth of its compile time.
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
    """Registers the loop for other loops only, so that a call from Python fails cleanly instead of crashing."""
    loop.overloads[tuple(result.signature.args)] = result


def read_all(*, waits: bool = True) -> None:
    """Loads or compiles every loop that was imported and not called yet, so that no decision waits for it.

    An inner loop is left to loops that must be compiled: compiled ones already contain it, and reading it as well
    takes a new process half as long again.

    `solvers.compiling` uses all cores and may be compiling these loops right now: then this waits for it or, unless
    it `waits`, leaves the missing loops to be loaded when they are called.
    """
    folder = cache_folder()
    with LOCK:
        while folder and not are_compiled() and is_compiled_elsewhere(folder):
            if not waits:
                return
            time.sleep(LOOK_SECONDS)
        for loop, signature in WAITING:
            if not is_inner(loop):
                get(loop, signature)
        WAITING.clear()


def is_inner(loop: Any) -> bool:
    return bool(loop.targetoptions.get("no_cpython_wrapper"))


def call_before_compiling(announce: Callable[[], None]) -> None:
    """Registers a function that is called before the first loop is compiled, and never if all loops are cached."""
    BEFORE_COMPILING.append(announce)


def are_compiled() -> bool:
    """Returns whether every loop that was imported and not called yet is cached."""
    return all(is_cached(loop) for loop, _ in WAITING)


def is_cached(loop: Any) -> bool:
    return isinstance(loop._cache, LoopCache) and loop._cache.is_cached()


def _read_when_called(loop: Any, signature: Any) -> None:
    """Defers the loading of a loop until it is called, or until another loop that calls it is compiled."""

    def called(*_: Any, **__: Any) -> Any:
        get(loop, signature)
        return loop  # the dispatcher then calls it again with the same arguments

    def compiled_in(args: Any, named: Any) -> Any:
        get(loop, signature)
        return loop.get_call_template(args, named)

    vars(loop).update(_compile_for_args=called, get_call_template=compiled_in)
    WAITING.append((loop, signature))


def get(loop: Any, signature: Any) -> None:
    """Loads or compiles the loop with this signature, and refuses any other from then on."""
    with LOCK:
        if not loop.signatures:
            while BEFORE_COMPILING and not is_cached(loop):
                BEFORE_COMPILING.pop()()
            loop.compile(signature)
            loop.disable_compile()
            _check_owner(loop)
            for deferred in ("_compile_for_args", "get_call_template"):
                vars(loop).pop(deferred, None)


def _check_owner(loop: Any) -> None:
    """Refuses a loop that returns uncounted arrays: the caller would free them while their owner still uses them."""
    for signature in loop.nopython_signatures:
        if not loop.targetoptions["_nrt"] and holds_arrays(signature.return_type):
            raise TypeError(f"{loop.py_func.__qualname__} returns arrays: makes_arrays=True")


def holds_arrays(kind: Any) -> bool:
    return isinstance(kind, numba.types.Array) or any(holds_arrays(inner) for inner in getattr(kind, "types", ()))
