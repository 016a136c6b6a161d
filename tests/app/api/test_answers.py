"""Every route says by a type what it answers with, and the document has all of these types."""

from __future__ import annotations

import json
from typing import TypedDict

from fastapi import FastAPI

from app.api.replies import Reply, TypedRouter
from app.api.requests import answer
from tests.support.contract import DOCUMENT


def test_every_json_answer_has_a_schema() -> None:
    document = json.loads(DOCUMENT.read_text())
    empty = [
        f"{method} {path} {status}"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for status, response in operation["responses"].items()
        if response.get("content", {}).get("application/json", {"schema": "?"})["schema"] == {}
    ]
    assert not empty


def test_the_document_names_schemas_and_no_types() -> None:
    text = DOCUMENT.read_text()
    names = json.loads(text)["components"]["schemas"].keys()
    assert not [name for name in names if name.endswith("Wire")]
    assert 'Wire"' not in text


class KettleWire(TypedDict):
    """A kettle."""

    litres: float


def test_a_routes_type_is_what_fastapi_documents_beside_the_answers_it_names_itself() -> None:
    router = TypedRouter()

    @router.get("/kettle", status_code=201, responses={204: {"description": "No kettle"}})
    def get_kettle() -> Reply[KettleWire]:
        return answer({"litres": 1.5}, 201)

    app = FastAPI()
    app.include_router(router)
    found = app.openapi()["paths"]["/kettle"]["get"]["responses"]
    assert found["201"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Kettle"}
    assert found["204"] == {"description": "No kettle"}
