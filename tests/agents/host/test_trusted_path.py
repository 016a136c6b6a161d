"""A path is trusted only if root or this process's user owns each part of it and nobody else can replace one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.host.trusted_path import PathMissing, PathRefused, find_real, open_trusted
from tests.support.figures import descriptors

STRANGER = 20001


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A file in two folders, all of which are trusted."""
    folder = tmp_path / "opt" / "shop"
    folder.mkdir(parents=True)
    found = folder / "serve"
    found.write_bytes(b"")
    for part in (folder.parent, folder, found):
        part.chmod(0o755)
    return found


def link(path: Path, target: Path | str) -> Path:
    path.symlink_to(target)
    return path


def sticky(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o1777)
    return path


WAYS_THERE: dict[str, Callable[[Path, Path], Path]] = {
    "itself": lambda program, _: program,
    "a link": lambda program, folder: link(folder / "link", program),
    "a relative link": lambda program, folder: link(folder / "link", "opt/shop/serve"),
    "a link to a link": lambda program, folder: link(folder / "a", link(folder / "b", program)),
    "a linked folder": lambda program, folder: link(folder / "current", program.parent) / "serve",
    "a folder and back": lambda program, folder: folder / "opt" / ".." / "opt" / "shop" / "serve",
    "a folder of the root and back": lambda program, _: Path(f"/{program.parts[1]}/..{program}"),
    "above the root": lambda program, folder: Path("/..") / ".." / str(program)[1:],
}


@pytest.mark.parametrize("way", WAYS_THERE)
def test_a_trusted_path_is_followed_to_its_real_name(program: Path, tmp_path: Path, way: str) -> None:
    before = descriptors()
    path = WAYS_THERE[way](program, tmp_path)
    with open_trusted(str(path)) as found:
        assert (found.real, found.is_file, found.is_folder) == (str(program), True, False)
        assert os.path.samestat(os.fstat(found.descriptor), program.stat())
    assert descriptors() == before


def test_a_folder_of_ones_own_is_trusted_where_everyone_may_make_names(tmp_path: Path) -> None:
    own = sticky(tmp_path / "tmp") / "own"
    own.mkdir(mode=0o755)
    (own / "serve").touch(mode=0o755)
    assert find_real(f"{own}/serve") == f"{own}/serve"


def in_sticky(program: Path, folder: Path) -> Path:
    return program.rename(sticky(folder / "tmp") / "serve")


def chained(program: Path, folder: Path, count: int) -> Path:
    """So many links, each to the next, that the last one leads to the program."""
    path = program
    for number in range(count):
        path = link(folder / f"link-{number}", path)
    return path


def test_as_many_links_are_followed_as_the_kernel_follows(program: Path, tmp_path: Path) -> None:
    path = chained(program, tmp_path, 40)
    assert find_real(str(path)) == str(program)
    assert path.samefile(program)
    with pytest.raises(PathRefused, match=f"{tmp_path}/last: more than 40 links"):
        find_real(str(link(tmp_path / "last", path)))


def test_a_refusal_names_the_part_and_the_path_once(program: Path, tmp_path: Path) -> None:
    program.chmod(0o757)
    why = f"{program} is writable by others than its owner (mode 757); run chmod go-w {program}"
    for path, shown in ((program, why), (link(tmp_path / "link", program), f"{tmp_path}/link: {why}")):
        with pytest.raises(PathRefused) as refused:
            find_real(str(path))
        assert str(refused.value) == shown


def given_mode(mode: int, of: Callable[[Path], Path]) -> Callable[[Path, Path], Path]:
    def change(program: Path, _: Path) -> Path:
        of(program).chmod(mode)
        return program

    return change


REFUSED: dict[str, tuple[Callable[[Path, Path], Path], str]] = {
    "a file that everyone writes": (given_mode(0o757, lambda program: program), "serve is writable by others"),
    "a file that its group writes": (given_mode(0o775, lambda program: program), "serve is writable by others"),
    "a folder that everyone writes": (given_mode(0o757, lambda program: program.parent), "shop is writable by others"),
    "a grandparent that everyone writes": (given_mode(0o777, lambda program: program.parents[1]), "opt is writable"),
    "a folder that a group writes": (given_mode(0o775, lambda program: program.parents[1]), "opt is writable"),
    "a file where everyone makes names": (in_sticky, "lies directly in a folder where everyone may make names"),
    "a link where everyone makes names": (
        lambda program, folder: link(sticky(folder / "tmp") / "link", program),
        "lies directly in a folder where everyone may make names",
    ),
    "a sticky file": (given_mode(0o1777, lambda program: program), "serve is writable by others"),
    "links in a circle": (lambda program, folder: link(folder / "a", link(folder / "b", "a")), "more than 40 links"),
    "a file as a folder": (lambda program, folder: program / "x", "cannot be followed: Not a directory"),
    "a relative path": (lambda program, folder: Path("serve"), "serve is no absolute path"),
}


@pytest.mark.parametrize("way", REFUSED)
def test_what_others_could_replace_is_refused_and_the_part_is_named(program: Path, tmp_path: Path, way: str) -> None:
    make, says = REFUSED[way]
    path = make(program, tmp_path)
    before = descriptors()
    with pytest.raises(PathRefused) as refused:
        find_real(str(path))
    assert says in str(refused.value)
    assert descriptors() == before


@pytest.mark.needs_root("to give a file away")
@pytest.mark.parametrize("part", ["opt", "opt/shop", "opt/shop/serve", "link"])
def test_no_part_belongs_to_another_user(program: Path, tmp_path: Path, part: str) -> None:
    path = link(tmp_path / "link", program)
    assert find_real(str(path)) == str(program)
    os.chown(tmp_path / part, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(PathRefused, match=f"{part} belongs to user {STRANGER}, and must belong to root"):
        find_real(str(path))


def test_what_does_not_exist_is_missing_only_after_everything_before_it_is_trusted(program: Path) -> None:
    absent = program.with_name("absent")
    with pytest.raises(PathMissing, match="absent does not exist"):
        find_real(str(absent))
    program.parent.chmod(0o777)
    with pytest.raises(PathRefused, match="shop is writable") as refused:
        find_real(str(absent))
    assert not isinstance(refused.value, PathMissing)


@pytest.mark.needs_root("to give a folder away")
def test_a_shared_end_may_belong_to_anyone_except_where_they_could_exchange_it(tmp_path: Path) -> None:
    for parent, is_trusted in ((tmp_path, True), (sticky(tmp_path / "tmp"), False)):
        folder = parent / "data"
        folder.mkdir(mode=0o777)
        os.chown(folder, STRANGER, STRANGER)
        with pytest.raises(PathRefused):
            find_real(str(folder))
        if is_trusted:
            with open_trusted(str(folder), is_end_shared=True) as found:
                assert (found.real, found.is_folder) == (str(folder), True)
        else:
            with pytest.raises(PathRefused, match=f"data belongs to user {STRANGER}"), open_trusted(str(folder), True):
                pass
