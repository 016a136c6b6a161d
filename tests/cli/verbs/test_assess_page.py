"""The page that `gpuwright assess --html` writes, as text and in a real browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from cli.main import main
from tests.app.console.conftest import browser  # noqa: F401
from tests.cli.verbs.test_assess_levels import PROFILE
from tests.clusters.made_up import deployment, node, pod_spec
from tests.support.axe import violations_in_either_light
from tests.support.forked import ROOT

pytestmark = pytest.mark.slow

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(1)>\u202egnp"


class Elements(HTMLParser):
    """All elements of a page, with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    assert main(["assess", "--demo", "--backtest", "7d", "--html", str(file)]) == 0
    return file


def written(words: list[str], folder: Path) -> Elements:
    file = folder / "page.html"
    assert main(["assess", *words, "--html", str(file)]) == 0
    return Elements(file.read_text())


def test_the_page_shows_what_the_text_shows(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Elements(page.read_text())
    main(["assess", "--demo", "--backtest", "7d"])
    words = capsys.readouterr().out.split()
    assert len(words) > 500
    text = shown.text.replace("\N{EN DASH}", "-")
    missing = {word for word in words if word not in text}
    assert missing == {"known:"}


def test_the_page_runs_nothing_and_fetches_nothing(page: Path) -> None:
    shown = Elements(page.read_text())
    tags = {tag for tag, _ in shown.found}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "form", "a", "base", "image", "use"})
    names = {name for _, attributes in shown.found for name in attributes}
    assert not {name for name in names if name.startswith("on")}
    assert names.isdisjoint({"href", "src", "style", "action"})
    assert "url(" not in page.read_text()
    policies = [attributes["content"] for _, attributes in shown.found if "http-equiv" in attributes]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_names_from_the_cluster_stay_text(tmp_path: Path) -> None:
    hostile = node(HOSTILE, 8, HOSTILE, HOSTILE, region=HOSTILE)
    items = [hostile, *deployment(HOSTILE, HOSTILE, pod_spec("image:1", 1), [HOSTILE])]
    file = tmp_path / "objects.json"
    file.write_text(json.dumps(items))
    shown = written(["-f", str(file)], tmp_path)
    assert {"script", "img"}.isdisjoint(tag for tag, _ in shown.found)
    assert "<script>alert(1)</script><img src=x onerror=alert(1)>\\u202egnp" in shown.text
    assert "\u202e" not in shown.text


def test_levels_stand_apart_on_the_page(tmp_path: Path) -> None:
    profiles = tmp_path / "ranker.yaml"
    profiles.write_text(PROFILE)
    shown = written(["--demo", "--profiles", str(profiles)], tmp_path)
    names = ["shown by your own data (L0)", "Sharing GPUs could save (L1)", "Certified with profiles (L2)"]
    assert all(name in shown.text for name in names)
    assert [attributes["class"] for tag, attributes in shown.found if tag == "dl"] == [
        "tile paid", "tile shown", "tile honest", "tile certified", "tile limit",
    ]  # fmt: skip
    assert "Which model to profile next" in shown.text
    profiles.write_text(PROFILE.replace("model: ranker", "model: other"))
    assert "L2, certified with profiles: nothing" in written(["--demo", "--profiles", str(profiles)], tmp_path).text


def test_what_was_not_measured_is_said_on_the_page(tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    file.write_text(json.dumps([node("n1", 8, "NVIDIA-L4", "own")]))
    shown = written(["-f", str(file)], tmp_path)
    assert "no load was measured: give --prometheus" in shown.text
    assert "without the price of 8 GPUs" in shown.text
    file.write_text("[]")
    assert "No node of this cluster shows GPUs." in written(["-f", str(file)], tmp_path).text


def test_tiles_say_what_they_leave_out(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nprices:\n- {instanceType: p4d.24xlarge, perHour: 20}\n")
    shown = written(["--demo", "--prices", str(prices), "--backtest", "7d"], tmp_path)
    tiles = shown.text.partition("The bill, and what each level saves of it")[0]
    assert "29,200.00 a month of 730 hours, without the price of 44 GPUs" in tiles
    assert tiles.count("of what priced nodes cost: ") == 4
    [first] = [attributes for tag, attributes in shown.found if tag == "th" and attributes.get("scope") == "col"][:1]
    assert "class" not in first


def test_a_page_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assess", "--demo", "--html", str(tmp_path / "none" / "page.html")]) == 2
    assert "page.html cannot be written: No such file or directory" in capsys.readouterr().err


@pytest.fixture
def opened(browser: Browser, page: Path) -> Iterator[Any]:  # noqa: F811
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: complaints.append(request.url) if request.url != page.as_uri() else None)
    tab.goto(page.as_uri())
    yield tab
    tab.close()
    assert complaints == []


def test_everybody_can_read_it_in_either_light_on_a_phone_and_on_paper(opened: Any) -> None:
    assert violations_in_either_light(opened) == []
    for width in (1280, 390):
        opened.set_viewport_size({"width": width, "height": 900})
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.emulate_media(media="print", color_scheme="dark")
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert opened.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    opened.set_viewport_size({"width": 704, "height": 900})
    cut = "[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth + 1).length"
    assert opened.evaluate(cut) == 0


def test_a_reader_of_only_the_beginning_of_the_text_gets_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = [sys.executable, "-u", "-m", "cli.main", "assess", "--demo", "--html", str(page)]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert page.read_text().rstrip().endswith("</html>")
