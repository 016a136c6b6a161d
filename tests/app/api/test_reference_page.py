"""The API reference that the server renders from its own document, in a real browser without network or token."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser

from app.openapi.reference import read_document
from tests.app.console.conftest import browser as browser
from tests.app.console.test_browser import PHONE, opened
from tests.support.axe import violations_in_either_light
from tests.support.contract import DOCUMENT
from tests.support.server import RunningServer


@pytest.mark.slow
def test_the_reference_names_every_operation_and_schema_and_needs_no_token(server: RunningServer) -> None:
    answer = server.request("GET", "/docs", token="")
    assert answer.status == 200
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    style = server.request("GET", "/docs/reference.css", token="", headers={"Accept": "text/css,*/*;q=0.1"})
    assert style.status == 200
    document = json.loads(DOCUMENT.read_text())
    for operations in document["paths"].values():
        for operation in operations.values():
            assert f'id="{operation["operationId"]}"' in answer.text
    for name in document["components"]["schemas"]:
        assert f'id="schema-{name}"' in answer.text


@pytest.mark.slow
def test_the_document_is_the_same_on_every_server(server: RunningServer) -> None:
    document = server.request("GET", "/openapi.json", token="")
    assert document.json == json.loads(DOCUMENT.read_text())


def test_types_are_spelled_in_words() -> None:
    read = read_document(json.loads(DOCUMENT.read_text()))
    event = next(schema for schema in read.schemas if schema.name == "Event")
    types = {field.name: "".join(word.text for word in field.type) for field in event.fields}
    assert types["severity"] == "one of info, warning, alarm"
    assert types["generation"] == "integer or null"
    assert types["at"] == "string (date-time)"
    listed = next(schema for schema in read.schemas if schema.name == "EventList")
    assert [word.schema for field in listed.fields for word in field.type if word.schema] == ["Event", "PageMetadata"]


@pytest.mark.slow
def test_the_reference_is_readable_in_either_light(browser: Browser, server: RunningServer) -> None:
    with opened(browser, server) as page:
        page.goto("/docs")
        page.locator("#getService summary").click()
        page.locator("#getService").get_by_role("link", name="Service", exact=True).click()
        page.wait_for_url("**/docs#schema-Service")
        # A part that has everything once: axe takes minutes over thousands of links that are all alike.
        page.evaluate(
            "document.querySelectorAll('main section section, main > section').forEach(part => "
            "part.matches('#noun-services, #schemas, #schema-Service') || part.remove())"
        )
        assert violations_in_either_light(page) == []


@pytest.mark.slow
def test_a_phone_shows_the_reference_without_scrolling_sideways(browser: Browser, server: RunningServer) -> None:
    with opened(browser, server, "", **PHONE) as page:
        page.goto("/docs#putService")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
