"""Opens a path only if root or this process's user owns every part of it and nobody else can replace one.

Each folder, link and file is opened in the folder before it and checked by its own descriptor, so that what is checked
is what is opened: a path that is looked up twice can name two things.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MOST_LINKS = 40  # as the kernel follows
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class PathRefused(OSError):
    """A path that another user could replace, or that cannot be followed; the message names the part and why."""


class PathMissing(PathRefused):
    """Nothing has the path. Nobody else can put anything there: the parts that exist are trusted."""


@dataclass(frozen=True, slots=True)
class TrustedPath:
    """What a path leads to: its real name, without links, and a descriptor of it that can be executed, not read."""

    real: str
    descriptor: int
    is_file: bool
    is_folder: bool


@contextmanager
def open_trusted(path: str, is_end_shared: bool = False) -> Iterator[TrustedPath]:
    """Opens what an absolute path leads to. `is_end_shared`: the last part itself may belong to anyone.

    Raises PathRefused or PathMissing.
    """
    walk = _Walk(path)
    try:
        yield walk.follow(is_end_shared)
    finally:
        walk.close()


def find_real(path: str) -> str:
    """Returns the real name of what a trusted path leads to; raises PathRefused or PathMissing."""
    with open_trusted(path) as found:
        return found.real


class _Walk:
    """Follows one path from the root, keeping the folders that lead to where it stands."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._owners = (0, os.geteuid())
        self._stack: list[tuple[str, int]] = []  # name and descriptor of each part, from the root on
        self._links = 0

    def close(self) -> None:
        while self._stack:
            os.close(self._stack.pop()[1])

    def follow(self, is_end_shared: bool) -> TrustedPath:
        if not self._path.startswith("/"):
            raise PathRefused(f"{self._path} is no absolute path")
        ahead: deque[str] = deque()
        self._head_for(self._path, ahead)
        while ahead:
            name = ahead.popleft()
            if name == "..":  # of a folder without links, and so the one before it here
                if len(self._stack) > 1:
                    os.close(self._stack.pop()[1])
                continue
            facts = self._enter(name)
            if stat.S_ISLNK(facts.st_mode):
                self._refuse_if_others_replace(facts)
                _, descriptor = self._stack.pop()
                try:
                    target = os.readlink("", dir_fd=descriptor)
                finally:
                    os.close(descriptor)
                self._head_for(target, ahead)
            elif ahead:
                self._refuse_if_others_write(facts, may_be_sticky=True)
            elif not is_end_shared:
                self._refuse_if_others_write(facts)
        descriptor = self._stack[-1][1]
        mode = os.fstat(descriptor).st_mode
        return TrustedPath(self._place, descriptor, stat.S_ISREG(mode), stat.S_ISDIR(mode))

    @property
    def _place(self) -> str:
        return "/" + "/".join(name for name, _ in self._stack[1:])

    def _head_for(self, target: str, ahead: deque[str]) -> None:
        """Puts the parts of a path or of a link's target before those that are still ahead."""
        self._links += 1
        if self._links > MOST_LINKS + 1:
            raise PathRefused(f"{self._path}: more than {MOST_LINKS} links")
        if target.startswith("/"):
            self.close()
            self._stack.append(("", os.open("/", _LOOK | os.O_DIRECTORY)))
            self._refuse_if_others_write(os.fstat(self._stack[0][1]))
        ahead.extendleft(reversed([part for part in target.split("/") if part not in ("", ".")]))

    def _enter(self, name: str) -> os.stat_result:
        """Opens a part in the folder before it; in a folder where everyone may make names, only a folder is trusted."""
        folder = self._stack[-1][1]
        try:
            descriptor = os.open(name, _LOOK, dir_fd=folder)
        except FileNotFoundError as error:
            raise PathMissing(self._shown(name, "does not exist")) from error
        except OSError as error:
            raise PathRefused(self._shown(name, f"cannot be followed: {error.strerror}")) from error
        is_sticky = bool(os.fstat(folder).st_mode & stat.S_ISVTX)
        self._stack.append((name, descriptor))
        facts = os.fstat(descriptor)
        if is_sticky:
            self._refuse_if_others_replace(facts)
            if not stat.S_ISDIR(facts.st_mode):  # anyone may have made it, as a second name of a trusted file
                raise self._refuse("lies directly in a folder where everyone may make names; put it in a folder there")
        return facts

    def _refuse_if_others_write(self, facts: os.stat_result, may_be_sticky: bool = False) -> None:
        """Refuses what others may write, except folders on the way where each user may replace only what is theirs."""
        self._refuse_if_others_replace(facts)
        is_sticky = may_be_sticky and bool(facts.st_mode & stat.S_ISVTX)
        if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky:
            mode = f"{stat.S_IMODE(facts.st_mode):o}"
            raise self._refuse(f"is writable by others than its owner (mode {mode}); run chmod go-w {self._place}")

    def _refuse_if_others_replace(self, facts: os.stat_result) -> None:
        if facts.st_uid not in self._owners:
            allowed = "root" if os.geteuid() == 0 else f"root or user {os.geteuid()}"
            raise self._refuse(f"belongs to user {facts.st_uid}, and must belong to {allowed}")

    def _refuse(self, why: str) -> PathRefused:
        return PathRefused(self._shown("", why))

    def _shown(self, name: str, why: str) -> str:
        """Returns a sentence about a part, which begins with the path where that is another one."""
        part = f"{self._place.rstrip('/')}/{name}" if name else self._place
        return f"{part} {why}" if part == self._path else f"{self._path}: {part} {why}"
