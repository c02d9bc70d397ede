"""Google's access tokens: what the metadata server, the Security Token Service and the IAM
credentials service hand out, and what each of them opens."""

import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote

from aiohttp import web

LIFE_S: Final = 3600.0
TOKENS_MAX: Final = 100_000
STS: Final = "/v1/token"
GENERATE: Final = "/v1/projects/-/serviceAccounts/{account}:generateAccessToken"
SETTINGS: Final = "/sim/v1/tokens"
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_READ: Final = "inRole:roles/storage.objectViewer"
_ROLES: Final = frozenset(
    {"inRole:roles/storage.objectUser", "inRole:roles/storage.objectAdmin", _READ}
)
_BUCKET: Final = "//storage.googleapis.com/projects/_/buckets/"
_TEXT: Final = r"'((?:[^'\\]|\\.)*)'"
_OBJECTS: Final = re.compile(rf"resource\.name\.startsWith\({_TEXT}\)\Z")
_LISTS: Final = re.compile(
    r"api\.getAttribute\('storage\.googleapis\.com/objectListPrefix', ''\)"
    rf"\.startsWith\({_TEXT}\)\Z"
)


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a Credential Access Boundary leaves of its account's rights."""

    bucket: str
    objects: tuple[str, ...] = ()
    """Resource names begin with one of these."""
    lists: tuple[str, ...] = ()
    """Lists ask for a prefix that begins with one of these."""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """What a token stands for."""

    account: str
    ends_at: float
    boundaries: tuple[Boundary, ...] | None = None
    """None: all rights of the account."""
    scopes: tuple[str, ...] = ()

    def opens(
        self,
        bucket: str,
        *,
        name: str | None = None,
        listed: str | None = None,
        write: bool = False,
    ) -> bool:
        """Whether it is for this object, or for this list."""
        if self.boundaries is None:
            return True
        resource = f"projects/_/buckets/{bucket}/objects/{name}"
        return any(
            (name is not None and resource.startswith(rule.objects))
            or (listed is not None and listed.startswith(rule.lists))
            for rule in self.boundaries
            if rule.bucket == bucket and not (write and rule.read_only)
        )


@dataclass(slots=True)
class PretendTokens:
    """All tokens that are out. `scheduler`: the account that owns buckets, and that may be other
    accounts; VMs have accounts that may do neither."""

    scheduler: str
    clock: Callable[[], float]
    life_s: float = LIFE_S
    minted: list[str] = field(default_factory=list)
    """What it did, in words: for tests."""
    _grants: dict[str, TokenGrant] = field(default_factory=dict, repr=False)

    def issue(self, grant: TokenGrant) -> str:
        token = f"ya29.pretend-{secrets.token_urlsafe(24)}"
        self._grants[token] = grant
        if len(self._grants) > TOKENS_MAX:
            del self._grants[next(iter(self._grants))]
        return token

    def own(self, account: str) -> Mapping[str, object]:
        """What a metadata server says of its account."""
        token = self.issue(TokenGrant(account, self.clock() + self.life_s))
        return {"access_token": token, "expires_in": int(self.life_s), "token_type": "Bearer"}

    def of(self, request: web.Request) -> TokenGrant | None:
        """Of the caller; None: nobody, or a token that has ended."""
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return self.grant(token)

    def grant(self, token: str) -> TokenGrant | None:
        found = self._grants.get(token)
        return found if found is not None and self.clock() < found.ends_at else None

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post(STS, self._exchange)
        app.router.add_post(GENERATE, self._generate)
        app.router.add_post(SETTINGS, self._set)
        app.router.add_get(SETTINGS, self._told)

    async def _exchange(self, request: web.Request) -> web.Response:
        form = await request.post()
        source = self.grant(str(form.get("subject_token", "")))
        if form.get("grant_type") != _EXCHANGE or source is None:
            return _oauth_error("invalid_grant", "the subject token is not valid")
        try:
            options = json.loads(unquote(str(form.get("options", ""))))
            rules = options["accessBoundary"]["accessBoundaryRules"]
            boundaries = tuple(parse_rule(rule) for rule in rules)
        except (ValueError, KeyError, TypeError) as error:
            return _oauth_error("invalid_request", f"options: {error!r}")
        if source.boundaries is not None:
            return _oauth_error("invalid_grant", "the subject token has a boundary already")
        token = self.issue(TokenGrant(source.account, source.ends_at, boundaries))
        self.minted.append(f"store {boundaries[0].objects[0]}")
        kind = "urn:ietf:params:oauth:token-type:access_token"
        body = {"access_token": token, "issued_token_type": kind, "token_type": "Bearer"}
        return web.json_response({**body, "expires_in": int(source.ends_at - self.clock())})

    async def _generate(self, request: web.Request) -> web.Response:
        caller, account = self.of(request), request.match_info["account"]
        if caller is None:
            return _error(401, "UNAUTHENTICATED", "no valid token")
        if caller.account != self.scheduler or caller.boundaries is not None:
            return _error(403, "PERMISSION_DENIED", "iam.serviceAccounts.getAccessToken")
        body = await request.json()
        scopes = tuple(str(scope) for scope in body.get("scope", ()))
        life_s = min(float(str(body.get("lifetime", "3600s")).rstrip("s")), self.life_s)
        ends_at = self.clock() + life_s
        token = self.issue(TokenGrant(account, ends_at, scopes=scopes))
        self.minted.append(f"account {account}")
        until = datetime.fromtimestamp(ends_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return web.json_response({"accessToken": token, "expireTime": until})

    async def _set(self, request: web.Request) -> web.Response:
        """How long new ones last, and whether all that are out end now."""
        told = await request.json()
        self.life_s = float(told.get("life_s", self.life_s))
        if told.get("end"):
            self._grants.clear()
        return await self._told(request)

    async def _told(self, _: web.Request) -> web.Response:
        return web.json_response({"life_s": self.life_s, "minted": self.minted[-1000:]})


def parse_rule(rule: Mapping[str, object]) -> Boundary:
    """ValueError for what this pretend service does not know."""
    resource, roles = str(rule["availableResource"]), rule["availablePermissions"]
    if not resource.startswith(_BUCKET) or not isinstance(roles, list) or not set(roles) <= _ROLES:
        raise ValueError(f"an unknown rule for {resource}")
    bucket = resource.removeprefix(_BUCKET)
    condition = rule.get("availabilityCondition")
    read_only = roles == [_READ]
    if condition is None:
        return Boundary(bucket, ("",), ("",), read_only)
    assert isinstance(condition, Mapping)
    objects: list[str] = []
    lists: list[str] = []
    for part in str(condition["expression"]).split(" || "):
        for form, found in ((_OBJECTS, objects), (_LISTS, lists)):
            if match := form.match(part):
                found.append(re.sub(r"\\(.)", r"\1", match[1]))
                break
        else:
            raise ValueError(f"an unknown condition: {part}")
    return Boundary(bucket, tuple(objects), tuple(lists), read_only)


def _oauth_error(code: str, words: str) -> web.Response:
    return web.json_response({"error": code, "error_description": words}, status=400)


def _error(status: int, word: str, text: str) -> web.Response:
    body: Mapping[str, object] = {"code": status, "status": word, "message": text}
    return web.json_response({"error": body}, status=status)
