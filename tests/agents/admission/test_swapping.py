"""Files, folders and links that are exchanged between the check of a program and its start never start another one."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from agents.admission.programs import find_unsafe, open_program
from agents.host.trusted_path import PathRefused
from agents.runtime import Launch, LaunchError
from agents.runtime.process import ProcessRuntime
from agents.templates import Confined, Filled
from tests.support.patience import until
from tests.support.soak import scaled

ADMITTED, FOREIGN = Path("/bin/true"), Path("/bin/false")  # their exit codes say which of them ran
SWAPS = scaled(10_000, 600, 60)
STARTS = scaled(100, 4, 1)
_HERE, _EXCHANGE = -100, 2  # of renameat2
_libc = ctypes.CDLL(None, use_errno=True)


class Swap:
    """A path that leads to the admitted program, and what takes its place and back: foreign, and open to everyone."""

    def __init__(self, folder: Path, kind: str) -> None:
        for name, program, mode in (("app", ADMITTED, 0o755), ("foreign", FOREIGN, 0o777)):
            (folder / name).mkdir()
            (folder / name).chmod(mode)
            shutil.copy(program, folder / name / "serve")
            (folder / f"{name}-link").symlink_to(folder / name / "serve")
        stranger = folder / "app" / "stranger"
        shutil.copy(FOREIGN, stranger)
        stranger.chmod(0o777)
        self.path, self._other = {
            "a link": (folder / "app-link", folder / "foreign-link"),
            "a file": (folder / "app" / "serve", stranger),
            "a folder": (folder / "app", folder / "foreign"),
        }[kind]
        self.program = str(self.path / "serve" if kind == "a folder" else self.path)
        self.count = 0

    def exchange(self) -> None:
        """Exchanges both at once, so that the path always leads somewhere."""
        one, other = os.fsencode(self.path), os.fsencode(self._other)
        assert _libc.renameat2(_HERE, one, _HERE, other, _EXCHANGE) == 0, os.strerror(ctypes.get_errno())
        self.count += 1


@pytest.fixture(params=["a link", "a file", "a folder"])
def swap(request: pytest.FixtureRequest, tmp_path: Path) -> Swap:
    return Swap(tmp_path, str(request.param))


def exit_code_of(descriptor: int, argv: tuple[str, ...]) -> int:
    os.set_inheritable(descriptor, True)
    process = os.posix_spawn(f"/proc/self/fd/{descriptor}", argv, {})
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_what_was_checked_is_what_starts(swap: Swap) -> None:
    """Each swap falls exactly between check and start."""
    for _ in range(SWAPS // 2):
        with open_program((swap.program,)) as program:
            swap.exchange()
            assert exit_code_of(program.descriptor, program.argv) == 0, "the admitted one runs"
        with pytest.raises(PathRefused, match="writable by others"), open_program((swap.program,)):
            pass
        swap.exchange()


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[ProcessRuntime]:
    runtime = ProcessRuntime(tmp_path / "copies", cgroups=False)
    yield runtime
    until(lambda: runtime.find() == (), "everything has ended")
    runtime.tidy(())


@pytest.mark.slow
def test_no_swap_during_a_start_makes_a_runtime_start_a_foreign_program(swap: Swap, runtime: ProcessRuntime) -> None:
    over = Event()

    def swapping() -> None:
        while not over.is_set():
            swap.exchange()

    filled = Filled("own", (swap.program,), confined=Confined())
    codes: list[int | None] = []
    with ThreadPoolExecutor(1) as others:
        race = others.submit(swapping)
        try:
            while len(codes) < STARTS or swap.count < SWAPS:
                try:
                    running = runtime.start(Launch(f"own-{len(codes)}", "", filled, 0))
                except LaunchError as refused:
                    assert "writable by others" in str(refused)
                    continue
                until(lambda running=running: not runtime.alive(running), "it has ended")  # type: ignore[misc]
                codes.append(runtime.exit_code(running))
        finally:
            over.set()
        race.result()
    assert set(codes) == {0}, "only the admitted program ever ran"


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_of_a_script_its_interpreter_is_opened_and_the_script_is_given_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir(mode=0o755)
    (tmp_path / "current").symlink_to("v1")
    script(tmp_path / "v1" / "serve", "#!/bin/sh -e\nexit 7\n")
    with open_program((f"{tmp_path}/current/serve", "--fast")) as program:
        assert program.argv == ("/bin/sh", "-e", f"{tmp_path}/v1/serve", "--fast")
        assert exit_code_of(program.descriptor, program.argv) == 7
    with open_program((sys.executable, "-u", f"{tmp_path}/current/serve", "x")) as program:
        assert program.argv == (sys.executable, "-u", f"{tmp_path}/v1/serve", "x"), "a link keeps its environment"
        assert os.path.samestat(os.fstat(program.descriptor), Path(sys.executable).stat())
    script(tmp_path / "v1" / "serve", "#! /bin/sh  -e -u\nexit 7\n")
    with open_program((f"{tmp_path}/v1/serve",)) as program:
        assert program.argv == ("/bin/sh", "-e -u", f"{tmp_path}/v1/serve"), "one argument, as the kernel gives it"
    script(tmp_path / "v1" / "serve", "#!/usr/bin/env sh\nexit 8\n")
    with open_program((f"{tmp_path}/v1/serve",)) as program:
        assert program.argv[0].endswith("bin/sh"), "env is replaced by what it would start"
        assert exit_code_of(program.descriptor, program.argv) == 8


UNSAFE = {
    "a script that everyone writes": ("#!/bin/sh\n", 0o777, "serve is writable by others"),
    "an interpreter that everyone writes": ("#!FOLDER/open/sh\n", 0o755, "open is writable by others"),
    "an interpreter that is a script": ("#!FOLDER/other\n", 0o755, "is a script itself"),
    "an interpreter by a relative path": ("#!sh\n", 0o755, "sh is no absolute path"),
    "an interpreter that finds code where everyone writes": (
        "#!/usr/bin/perl -IFOLDER/open\n",
        0o755,
        "open is writable",
    ),
    "no interpreter": ("#!\n", 0o755, "names no interpreter"),
    "env with an option": ("#!/usr/bin/env -S sh -e\n", 0o755, "without options of env"),
    "env with a variable": ("#!/usr/bin/env LD_PRELOAD=x sh\n", 0o755, "without options of env"),
    "env with an unknown program": ("#!/usr/bin/env no-such-interpreter\n", 0o755, "no-such-interpreter is in none of"),
}


@pytest.mark.parametrize("kind", UNSAFE)
def test_a_script_is_no_safer_than_its_interpreter(tmp_path: Path, kind: str) -> None:
    text, mode, says = UNSAFE[kind]
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    shutil.copy("/bin/sh", tmp_path / "open" / "sh")
    script(tmp_path / "other", "#!/bin/sh\n")
    path = script(tmp_path / "serve", text.replace("FOLDER", str(tmp_path)), mode)
    assert says in find_unsafe((str(path),))


# The program, and the words after it; LIB is what others may write.
SEARCHED = [
    "java -cp LIB/* Main", "java -Dx=LIB Main", "java -cp=/srv/absent:LIB Main", "java -javaagent:LIB Main",
    "java @LIB/arguments", "perl -I LIB /srv/serve.pl", "perl -ILIB /srv/serve.pl", "ruby -I LIB -r LIB/x /srv/serve",
    "node --require LIB/x.js /srv/serve.js", "julia -J LIB/x.so /srv/x.jl", "deno run LIB/x.ts", "perl -T LIB/x.pl",
    "torchrun --nproc-per-node 2 LIB/train.py", "uvicorn shop:app --app-dir LIB", "uvicorn shop:app --app-dir=LIB",
    "gunicorn shop:app -c LIB/conf.py", "python3 -m torch.distributed.run --nproc-per-node 2 LIB/train.py",
    "python3 -m torch.distributed.run --nproc-per-node=2 --standalone LIB/train.py 4", "python3 -X x=LIB -m shop",
    "python3 -m coverage run LIB/train.py", "python3 -m cProfile LIB/train.py", "python3 -I LIB/train.py",
    "python3 -m uvicorn shop:app --app-dir LIB", "python3 LIB/train.py", "php -z LIB/x.so -f LIB/x.php",
    "java --add-opens x/y=ALL -cp LIB Main", "java --add-opens x -cp LIB Main", "php -d k=v LIB/x.php",
    "php -c /etc LIB/x.php", "php -d auto_prepend_file=LIB/x.php /srv/x.php", "julia -t 4 LIB/x.jl",
    "ruby -E utf-8 LIB/x.rb", "node --conditions dev LIB/x.js", "deno run --cert /srv/pem LIB/x.ts",
    "deno serve LIB/x.ts", "R CMD BATCH LIB/x.R", "erl plain -pa LIB", "torchrun --standalone LIB/train.py",
    "torchrun --nnodes 1 --standalone LIB/train.py", "python3 -m torch.distributed.run --standalone LIB/train.py",
    "python3 -m trace --trace LIB/train.py", "python3 -m accelerate.commands.launch --multi_gpu LIB/train.py",
    "uvicorn --reload shop:app --app-dir LIB", "gunicorn shop:app -cLIB/conf.py", "python3 -uX x=LIB -m shop",
    "gunicorn shop:app --pythonpath=/srv/absent,LIB", "gunicorn shop:app --pid /srv/pid --chdir LIB",
    "python3 -muvicorn shop:app --app-dir LIB", "python3 -um uvicorn shop:app --app-dir LIB", "node --no-x -I LIB",
    "ipython3 --profile-dir LIB /srv/x.py",
]  # fmt: skip


@pytest.mark.parametrize("line", SEARCHED)
def test_whatever_says_where_an_interpreter_finds_code_is_checked(tmp_path: Path, line: str) -> None:
    lib, name = tmp_path / "lib", line.split(" ")[0]
    lib.mkdir(mode=0o755)
    for file in (
        "x",
        "x.js",
        "x.so",
        "x.ts",
        "x.pl",
        "x.php",
        "x.R",
        "x.rb",
        "x.jl",
        "train.py",
        "conf.py",
        "arguments",
    ):
        (lib / file).touch(mode=0o644)
    shutil.copy(ADMITTED, tmp_path / name)
    words = line.replace("LIB", str(lib)).split(" ")[1:]
    absent = [word for word in words if word.startswith("/srv/")]
    assert find_unsafe((f"{tmp_path}/{name}", *words)) in ("", *(f"{word} does not exist" for word in absent))
    lib.chmod(0o757)
    assert "lib is writable by others" in find_unsafe((f"{tmp_path}/{name}", *words))


@pytest.mark.parametrize(
    "line",
    [
        "python3 /usr/bin/x.py LIB", "perl /usr/bin/x LIB", "python3 -m shop --app-dir LIB", "serve -c LIB",
        "python3 -u -X dev /usr/bin/x --data LIB", "java -Xmx2g -jar /usr/bin/x --data LIB", "java -cp /srv Main LIB",
        "node --max-old-space-size=4096 /usr/bin/x --data LIB", "node --watch -- /usr/bin/x LIB",
        "deno run --allow-net /usr/bin/x LIB", "php -d k=v /usr/bin/x LIB", "torchrun --standalone /usr/bin/x LIB",
        "torchrun --nproc-per-node 2 /usr/bin/x --out LIB", "gunicorn shop:app --worker-tmp-dir LIB --pid=LIB/pid",
    ],
)  # fmt: skip
def test_what_a_program_reads_besides_may_belong_to_anyone(tmp_path: Path, line: str) -> None:
    lib, name = tmp_path / "lib", line.split(" ")[0]
    lib.mkdir(mode=0o755)
    lib.chmod(0o757)
    shutil.copy(ADMITTED, tmp_path / name)
    words = line.replace("LIB", str(lib)).replace("/usr/bin/x", str(ADMITTED)).split(" ")[1:]
    assert "lib" not in find_unsafe((f"{tmp_path}/{name}", *words))


def test_a_folder_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir(mode=0o755)
    assert "app is not a file" in find_unsafe((f"{tmp_path}/app",))
