"""The pages as a site: whole, without a broken link, and nothing of it fetched from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.house.tree import ROOT
from scripts.house.typed import DOCS
from tests.proofs.pages import done
from tests.support.needs import need_root
from tests.support.patience import patience

# What a browser would load by itself: not what a reader may click on.
LOADED = re.compile(
    r"<(?:script|img|iframe|source)[^>]* src=\"?(https?:)?//"
    r"|<link[^>]* rel=\"?(?:stylesheet|preload|icon)[^>]* href=\"?(https?:)?//"
    r"|@import|url\((https?:)?//"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=patience())
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_strictly_and_has_every_page(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    built = {path.parent.relative_to(site) for path in site.rglob("index.html")}
    assert {page for page in pages if page.name != "index"} <= built


@pytest.mark.slow
def test_nothing_of_it_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = {
        str(path.relative_to(site)): found[0]
        for path in site.rglob("*.html")
        if (found := LOADED.search(path.read_text()))
    }
    assert fetched == {}


@pytest.mark.soak  # minutes; CI runs them by `python -m tests.proofs.pages`
@pytest.mark.parametrize("name", ["tutorial", "three-machines"])
def test_a_page_can_be_done_by_its_letter(name: str) -> None:
    if name == "three-machines":
        need_root("to make network namespaces")
    code, said = done(DOCS / f"{name}.md")
    assert code == 0, said[-4000:]
