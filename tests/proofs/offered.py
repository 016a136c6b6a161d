"""Tries what an image offers, in the image itself: this file goes to its Python by stdin, and needs its packages alone.

python3 - imports PACKAGE... [-MODULE...]   imports all that these packages name anywhere, but for the left-out modules
python3 - verbs                             asks each verb of the command line for its help
python3 - trials                            lets the planner `mudi` choose a batch by all its trials

Prints one line of what was tried, and ends with 1 and the faults if something did not work.
"""

from __future__ import annotations

import ast
import html
import http.cookiejar
import importlib
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

OURS = ("app", "agents", "benchmarks", "cli", "clusters", "lab", "migrations", "simulation", "solvers")
MOST_PAGES_OF_A_KIND = 4


def try_imports(packages: Sequence[str]) -> tuple[str, list[str]]:
    """Imports the modules, and every library that they name, also those that a function imports when it is called."""
    left_out = tuple(name[1:] for name in packages if name.startswith("-"))
    modules = {
        module: path
        for package in packages
        if not package.startswith("-")
        for module, path in find_modules(package)
        if not f"{module}.".startswith(tuple(f"{name}." for name in left_out))
    }
    wanted = {module: str(path) for module, path in modules.items()}
    for path in modules.values():
        for name in find_named(ast.parse(path.read_text())):
            if name.partition(".")[0] not in OURS:
                wanted.setdefault(name, str(path))
    faults = []
    for name, where in sorted(wanted.items()):
        try:
            importlib.import_module(name)
        except ImportError as error:
            faults.append(f"{where} imports {name}: {error}")
    return f"{len(modules)} modules imported, and {len(wanted) - len(modules)} libraries that they name", faults


def find_modules(package: str) -> Iterator[tuple[str, Path]]:
    """Finds the modules of a package, or a single one, with their files; what runs as a program is none."""
    spec = find_spec(package.partition(".")[0])
    assert spec is not None and spec.origin is not None, package
    top = Path(spec.origin).parents[1]
    place = top / package.replace(".", "/")
    paths = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    assert all(path.exists() for path in paths), f"{package}: no such module"
    for path in paths:
        if path.name not in ("__main__.py", "launcher.py", "env.py"):
            yield ".".join(path.relative_to(top).with_suffix("").parts).removesuffix(".__init__"), path


def find_named(tree: ast.AST) -> Iterator[str]:
    """Finds the modules that code imports, anywhere but for the sake of types alone."""
    if isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.dump(tree.test):
        return
    if isinstance(tree, ast.Import):
        yield from (alias.name for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom) and tree.module and not tree.level:
        yield tree.module
    for child in ast.iter_child_nodes(tree):
        yield from find_named(child)


def try_verbs() -> tuple[str, list[str]]:
    """Asks each verb for its help, which loads what reads its arguments."""
    from cli.verb_table import OF_THE_LAB, VERBS

    names = [verb.name for verb in VERBS if verb.module != OF_THE_LAB]
    faults = []
    for name in names:
        words = [sys.executable, "-c", "import sys; from cli.main import main; sys.exit(main())", name, "--help"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode or not done.stdout.startswith("usage: gpuwright"):
            printed = f"{done.stdout[-200:]}{done.stderr[-500:]}"
            faults.append(f"gpuwright {name} --help ended with {done.returncode}: {printed}")
    return f"{len(names)} verbs asked", faults


def try_trials() -> tuple[str, list[str]]:
    """Lets Mudi's search measure as often as it may, where a batch of 32 is the fastest that meets the SLO."""
    from solvers.mudi.tuning import BatchTrial, BatchTuner, MeasuredBatch, Tuning

    tuner = BatchTuner(Tuning(slo_ms=40.0, most_batch=64))
    while tuner.remaining > 0:
        batch = tuner.next()
        tuner.add([BatchTrial(batch, MeasuredBatch(100.0 + 640.0 / batch, 8.0 + batch))])
    best = tuner.best()
    faults = [] if best is not None and 28 <= best <= 32 else [f"batch {best} was chosen of {tuner.trials}"]
    return f"{len(tuner.trials)} trials of mudi, batch {best}", faults


def try_pages(address: str, token: str) -> tuple[str, list[str]]:
    """Signs in to the console and follows its links, a few of each kind of page."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    form = urllib.parse.urlencode({"token": token}).encode()
    opener.open(urllib.request.Request(f"{address}/sign-in", form, {"Origin": address}), timeout=60).close()
    ahead, seen, faults = [f"{address}/"], {f"{address}/"}, []
    kinds: Counter[tuple[str, ...]] = Counter()
    while ahead:
        url = ahead.pop(0)
        try:
            with opener.open(url, timeout=60) as answer:
                text = answer.read().decode(errors="replace")
                is_page = answer.headers.get_content_type() == "text/html"
                faults += [f"{url} leads to the form for signing in"] if "/sign-in" in answer.url else []
        except (OSError, ValueError) as error:
            faults.append(f"{url}: {error}")
            continue
        for link in re.findall(r'href="([^"#]+)', text) if is_page else ():
            further = urllib.parse.urljoin(url, html.unescape(link))
            kind = find_kind(further)
            if further.startswith(f"{address}/") and further not in seen and kinds[kind] < MOST_PAGES_OF_A_KIND:
                seen.add(further)
                kinds[kind] += 1
                ahead.append(further)
    return f"{len(seen)} pages of the console, of {len(kinds)} kinds", faults


def find_kind(url: str) -> tuple[str, ...]:
    """Returns the first word of the path and the names of the query's fields: such pages are made by one module."""
    parts = urllib.parse.urlsplit(url)
    return (parts.path.split("/")[1], *sorted(urllib.parse.parse_qs(parts.query)))


def main(words: Sequence[str]) -> int:
    match list(words):
        case ["imports", *packages]:
            tried, faults = try_imports(packages)
        case ["verbs"]:
            tried, faults = try_verbs()
        case ["trials"]:
            tried, faults = try_trials()
        case _:
            raise SystemExit(__doc__)
    print(tried)
    print("\n".join(faults), file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
