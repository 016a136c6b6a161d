"""Signs people in from the command line: what to ask the provider for, and a token for what it gave."""

from __future__ import annotations

from typing import Annotated, TypedDict

from fastapi import Body, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.api.replies import Reply, TypedRouter
from app.api.requests import Ctx, NoBody, answer
from app.api.tokens import Label
from app.context import Context
from app.people.provider import Provider
from app.people.refusals import refuse
from app.people.signing_in import sign_in
from app.problem import HttpProblem
from app.store.world.objects import rfc3339
from app.wire import MomentText, Secret

router = TypedRouter(prefix="/api/v1/people", tags=["tokens"])

Text = Annotated[str, Field(max_length=65_536, pattern=r"^[!-~]*$")]


class ProviderWire(TypedDict):
    """Where a person signs in, and what the command line is called there; the provider describes the rest."""

    issuer: str
    clientId: str
    scopes: str
    groupsClaim: str


class PersonTokenWire(TypedDict):
    """The token of a person who has signed in."""

    id: str
    token: Secret
    name: str
    scope: str
    tenant: str | None
    expiresAt: MomentText | None


class PersonRequest(BaseModel):
    """What the provider gave to somebody who has signed in."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)

    id_token: Annotated[Text, Field(description="The provider's ID token, made within the last minutes")]
    access_token: Annotated[Text, Field(description="For groups that the ID token leaves out")] = ""
    tenant: Annotated[Label | None, Field(description="Sign in to this tenant, if one of the groups may")] = None


@router.get("", summary="Where people sign in; no bearer token needed")
def get_provider(ctx: Ctx, _body: NoBody) -> Reply[ProviderWire]:
    return answer(ProviderWire(**_provider(ctx).describe_devices()))  # type: ignore[typeddict-item]


@router.post("", status_code=201, summary="Sign in with the provider's ID token; no bearer token needed")
def sign_person_in(request: Request, ctx: Ctx, brought: Annotated[PersonRequest, Body()]) -> Reply[PersonTokenWire]:
    with refuse():
        person = _provider(ctx).identify(brought.id_token, brought.access_token)
    given = sign_in(ctx, person, request.scope["state"]["request_id"], "command-line", brought.tenant or "")
    row = given.row
    return answer(
        PersonTokenWire(
            id=row.id,
            token=given.text,
            name=person.name,
            scope=row.scope,
            tenant=row.tenant or None,
            expiresAt=rfc3339(row.expires_at) if row.expires_at else None,
        ),
        201,
    )


def _provider(ctx: Context) -> Provider:
    if ctx.provider is None:
        raise HttpProblem("not-found", "people do not sign in here: this server has no GPUWRIGHT_OIDC_ISSUER")
    return ctx.provider
