"""A cache of compiled loops that lacks one of them, as on a machine where they are compiled right now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from solvers.loop_cache import cache_folder, compiling_alone

OF_PLANS = "solvers.planning.search.fill.fill"
OF_EXPLANATIONS = "solvers.planning.fleet.kernels."
KNOWN = cache_folder()  # before a test sets XDG_CACHE_HOME


@contextmanager
def missing_loop(caches: Path, name: str) -> Iterator[Callable[[], None]]:
    """Fills the cache for processes that have this folder as XDG_CACHE_HOME; what it yields adds the missing loops.

    Nobody compiles them meanwhile, because it looks as if another process did.
    """
    assert KNOWN
    folder = caches / "gpuwright" / "compiled"
    folder.mkdir(parents=True, mode=0o700)
    missing = [path for path in KNOWN.iterdir() if path.name.startswith(name)]
    assert missing
    for path in {*KNOWN.iterdir()} - {*missing}:
        (folder / path.name).symlink_to(path)

    def supply() -> None:
        for path in missing:
            (folder / path.name).symlink_to(path)

    with compiling_alone(folder):
        yield supply
