"""The sign-in page: with a key and with an issuer, cookies, forged requests, signing out."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from config.settings import ApiSettings
from core.access import Grant
from core.access_rules import AccessRules
from core.access_store import NewSecret
from core.api_keys import secret_hash
from scheduler.access.authenticator import FRESH_S
from scheduler.api.http.app import create_app
from scheduler.api.services import Services
from tests.access import OWNER, known
from tests.issuer import Issuer, serving
from tests.scheduler.api.fakes import NOW, House, assert_error

HTML = {"accept": "text/html"}
FORM = {"content-type": "application/x-www-form-urlencoded", **HTML}
MEMBER, MEMBER_KEY = known("member000000", ("red", "member"))
_SECOND = timedelta(seconds=1)
JOB = {"command": ["true"], "gpu_count": 0, "tenant_id": "red"}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving(Issuer(now=NOW.timestamp)) as made:
        yield made


class Site:
    """The API, a browser that keeps cookies, and the person's issuer."""

    def __init__(self, issuer: Issuer, api: ApiSettings | None = None) -> None:
        ada = "user:ada@example.com"
        rules = AccessRules(
            {"corp": replace(issuer.settings(client_id="zen-web"), name="corp")},
            grants={ada: (Grant(ada, "red", "member"),)},
        )
        rules = replace(
            rules,
            issuers={"corp": replace(rules.issuers["corp"], audiences=("zen", "zen-web"))},
        )
        self.house = House(keys=(MEMBER_KEY,), door={"access": rules, "create_tenants": True})
        self.services: Services = self.house.services()
        if api is not None:
            self.services = replace(self.services, api=api)
        self.app = create_app(self.services)

    def browser(self, scheme: str = "http") -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app)
        return httpx.AsyncClient(transport=transport, base_url=f"{scheme}://zen", headers=HTML)


@pytest.fixture
def site(issuer: Issuer) -> Site:
    return Site(issuer)


@pytest.fixture
async def browser(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    async with site.browser() as made:
        yield made


async def sign_in(browser: httpx.AsyncClient, key: str = MEMBER) -> httpx.Response:
    return await browser.post("/sign-in", data={"key": key})


def csrf_in(page: str) -> str:
    found = re.search(r"name=csrf value='([0-9a-f]{64})'", page)
    assert found is not None, page
    return found[1]


def assert_signed_out(answer: httpx.Response) -> None:
    """The sign-in page in place of what was asked for."""
    assert answer.status_code == 401
    assert "Sign in with a key" in answer.text


async def test_a_browser_is_led_to_the_page_that_it_asked_for(browser: httpx.AsyncClient) -> None:
    """By the form and by an issuer. No dialogue of the browser covers the page."""
    for path in ("/docs", "/api/v1/jobs?status=RUNNING"):
        asked = await browser.get(path)
        assert_signed_out(asked)
        assert "Basic" not in asked.headers["www-authenticate"]
        assert f"name=next value='{path}'" in asked.text
        wrong = await browser.post("/sign-in", data={"key": "nonsense", "next": path})
        assert f"name=next value='{path}'" in wrong.text
        right = await browser.post("/sign-in", data={"key": MEMBER, "next": path})
        assert (right.status_code, right.headers["location"]) == (303, path)
        assert (await browser.get(path)).status_code == 200
        browser.cookies.clear()
    back = await browser.get(await _to_issuer(browser, "/docs"))
    assert (back.status_code, back.headers["location"]) == (303, "/docs")


async def test_programs_are_told_in_json(browser: httpx.AsyncClient) -> None:
    """Also a browser's requests with a wrong key, and its writes."""
    assert_error(await browser.get("/docs", headers={"accept": "*/*"}), 401, "unauthenticated")
    wrong = {"authorization": "Bearer zen_nonsense"}
    assert_error(await browser.get("/docs", headers=wrong), 401, "unauthenticated")
    assert_error(await browser.post("/api/v1/jobs", json=JOB), 401, "unauthenticated")


async def test_a_key_opens_a_session(browser: httpx.AsyncClient) -> None:
    """The cookie is the server's alone, and the page says who one is."""
    answer = await sign_in(browser)
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    cookie = next(c for c in answer.headers.get_list("set-cookie") if c.startswith("zen-session="))
    assert {"HttpOnly", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))
    page = (await browser.get("/sign-in")).text
    assert "Signed in as member000000" in page
    assert "<td>red<td>" in page
    assert MEMBER not in page
    assert (await browser.get("/api/v1/jobs")).status_code == 200


async def test_over_tls_the_cookie_is_secure(issuer: Issuer) -> None:
    """And no other host of the domain can set it."""
    site = Site(issuer, ApiSettings(behind_proxy=True))
    async with site.browser("https") as browser:
        answer = await sign_in(browser)
        (cookie,) = [
            c for c in answer.headers.get_list("set-cookie") if c.startswith("__Host-zen-session=")
        ]
        assert {"Secure", "HttpOnly", "Path=/"} <= set(cookie.split("; "))
        assert "Domain" not in cookie
        assert (await browser.get("/api/v1/jobs")).status_code == 200


async def test_a_wrong_key_is_told(browser: httpx.AsyncClient) -> None:
    """With the page, and without a cookie."""
    for wrong in ("", "nonsense", MEMBER[:-1] + "e", "a.b.c"):
        answer = await sign_in(browser, wrong)
        assert answer.status_code == 401
        assert "class=problem" in answer.text
        assert not browser.cookies


async def test_guesses_are_bounded(browser: httpx.AsyncClient) -> None:
    """As they are on the API."""
    statuses = [(await sign_in(browser, MEMBER[:-1] + "e")).status_code for _ in range(25)]
    assert statuses[-1] == 429


async def test_a_write_needs_the_token_of_the_page(browser: httpx.AsyncClient) -> None:
    """A form or a script of another site has the cookie at most."""
    await sign_in(browser)
    forged = await browser.post("/api/v1/jobs", json=JOB)
    assert_error(forged, 403, "forbidden")
    assert "X-CSRF-Token" in forged.text
    other = await browser.post("/api/v1/jobs", json=JOB, headers={"x-csrf-token": "0" * 64})
    assert_error(other, 403, "forbidden")
    token = csrf_in((await browser.get("/sign-in")).text)
    made = await browser.post("/api/v1/jobs", json=JOB, headers={"x-csrf-token": token})
    assert made.status_code == 201, made.text


async def test_a_page_of_another_site_signs_nobody_in(browser: httpx.AsyncClient) -> None:
    """Else people would work in the name of the page's author."""
    foreign = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    answer = await browser.post("/sign-in", data={"key": MEMBER}, headers=foreign)
    assert_error(answer, 403, "cross_site")
    assert not browser.cookies


async def test_a_sign_out_ends_the_session(browser: httpx.AsyncClient) -> None:
    """For everybody who has the cookie."""
    await sign_in(browser)
    cookie = browser.cookies["zen-session"]
    token = csrf_in((await browser.get("/sign-in")).text)
    refused = await browser.post("/sign-out", data={"csrf": "wrong"})
    assert_error(refused, 403, "forbidden")
    answer = await browser.post("/sign-out", data={"csrf": token})
    assert answer.status_code == 303
    assert "zen-session" not in browser.cookies
    browser.cookies.set("zen-session", cookie)
    assert_signed_out(await browser.get("/api/v1/jobs"))
    again = await browser.post("/sign-out", data={"csrf": token})
    assert again.status_code == 303


async def test_the_session_of_a_revoked_key_ends(site: Site, browser: httpx.AsyncClient) -> None:
    """And so does that of a key with a new secret: its cookie may be a thief's."""
    store = site.services.access.store
    await sign_in(browser)
    await store.rotate_key(NewSecret("member000000", secret_hash("2")))
    site.house.clock.at += FRESH_S * _SECOND
    assert_signed_out(await browser.get("/api/v1/jobs"))


async def test_an_admin_ends_a_session(site: Site, browser: httpx.AsyncClient) -> None:
    """Listed without its cookie."""
    await sign_in(browser)
    cookie = browser.cookies["zen-session"]
    async with site.browser() as admin:
        admin.headers["authorization"] = f"Bearer {OWNER}"
        listed = await admin.get("/api/v1/sessions", params={"principal": "key:member000000"})
        (row,) = listed.json()["sessions"]
        assert cookie.partition("_")[2] not in listed.text
        ended = await admin.delete(f"/api/v1/sessions/{row['session_id']}")
        assert ended.json()["ended_at"]
        unknown = await admin.delete("/api/v1/sessions/nope")
        assert_error(unknown, 404, "not_found")
    site.house.clock.at += FRESH_S * _SECOND
    assert_signed_out(await browser.get("/api/v1/jobs"))
    page = await browser.get("/sign-in")
    assert "the session was ended" in page.text
    assert "zen-session" not in browser.cookies


async def _to_issuer(browser: httpx.AsyncClient, way_back: str = "") -> str:
    """Where the issuer sends the browser back to."""
    params = {"issuer": "corp", "next": way_back}
    start = await browser.get("/sign-in/start", params=params)
    assert start.status_code == 303
    async with httpx.AsyncClient(trust_env=False) as outside:
        sent = await outside.get(start.headers["location"])
    assert sent.status_code == 302
    back = sent.headers["location"]
    assert back.startswith("http://zen/sign-in/callback?")
    return back.removeprefix("http://zen")


async def test_a_person_signs_in_with_their_issuer(browser: httpx.AsyncClient) -> None:
    """By authorization code with PKCE, state and nonce."""
    assert "Sign in with corp" in (await browser.get("/sign-in")).text
    answer = await browser.get(await _to_issuer(browser))
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    page = (await browser.get("/sign-in")).text
    assert "Signed in as ada@example.com" in page
    assert "zen-sign-in" not in browser.cookies
    token = {"x-csrf-token": csrf_in(page)}
    made = await browser.post("/api/v1/jobs", json=JOB, headers=token)
    assert made.status_code == 201, made.text


@pytest.mark.parametrize("denied", [False, True])
async def test_an_answer_of_another_issuer_signs_nobody_in(
    issuer: Issuer, browser: httpx.AsyncClient, denied: bool
) -> None:
    """RFC 9207: an answer that names another issuer, or none where the issuer always does."""
    issuer.denied = denied
    issuer.named = "https://evil.example"
    answer = await browser.get(await _to_issuer(browser))
    assert (answer.status_code, "not of the issuer" in answer.text) == (401, True)
    assert "zen-session" not in browser.cookies
    issuer.named, issuer.names_itself = None, True
    async with Site(issuer).browser() as other:
        answer = await other.get(await _to_issuer(other))
        assert (answer.status_code, "not of the issuer" in answer.text) == (401, True)


async def test_an_issuer_that_names_itself_signs_people_in(
    issuer: Issuer, browser: httpx.AsyncClient
) -> None:
    """RFC 9207."""
    issuer.named, issuer.names_itself = issuer.url, True
    assert (await browser.get(await _to_issuer(browser))).status_code == 303


async def test_a_call_back_belongs_to_its_browser(site: Site, browser: httpx.AsyncClient) -> None:
    """Somebody else's link to the call-back signs nobody in; nor does a second use."""
    back = await _to_issuer(browser)
    async with site.browser() as other:
        answer = await other.get(back)
        assert answer.status_code == 401
        assert "not begun in this browser" in answer.text
        assert "zen-session" not in other.cookies
    state = browser.cookies["zen-sign-in"]
    assert (await browser.get(back)).status_code == 303
    browser.cookies.set("zen-sign-in", state)
    assert (await browser.get(back)).status_code == 401


async def test_a_call_back_with_another_state_is_refused(browser: httpx.AsyncClient) -> None:
    """Also with a code that is good."""
    back = await _to_issuer(browser)
    code = parse_qs(urlsplit(back).query)["code"][0]
    for state in ("", "0" * 64):
        answer = await browser.get("/sign-in/callback", params={"code": code, "state": state})
        assert answer.status_code == 401


async def test_a_refusal_of_the_issuer_is_told(issuer: Issuer, browser: httpx.AsyncClient) -> None:
    """In its own word."""
    issuer.denied = True
    answer = await browser.get(await _to_issuer(browser))
    assert answer.status_code == 401
    assert "access_denied" in answer.text


async def test_a_token_that_answers_another_sign_in_is_refused(
    issuer: Issuer, browser: httpx.AsyncClient
) -> None:
    """By its nonce."""
    back = await _to_issuer(browser)
    for asked in issuer.codes.values():
        asked["nonce"] = "theirs"
    answer = await browser.get(back)
    assert answer.status_code == 401
    assert "nonce" in answer.text


async def test_unknown_issuers_are_told(browser: httpx.AsyncClient) -> None:
    """With the page."""
    for name in ("evil", "", "<script>"):
        answer = await browser.get("/sign-in/start", params={"issuer": name})
        assert answer.status_code == 401
        assert "<script" not in answer.text


async def test_the_page_runs_nothing(browser: httpx.AsyncClient) -> None:
    """No scripts, no frames, one style by its hash, forms to ourselves alone."""
    answer = await browser.get("/sign-in")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cache-control"] == "no-store"
    assert "<script" not in answer.text


async def test_programs_are_told_how_to_sign_in(site: Site, browser: httpx.AsyncClient) -> None:
    """zen login asks here; issuers without a client for it are not listed."""
    programs = {"accept": "*/*"}
    assert (await browser.get("/sign-in", headers=programs)).json() == {"issuers": []}
    rules = site.house.door["access"] if site.house.door else None
    assert isinstance(rules, AccessRules)
    corp = replace(rules.issuers["corp"], cli_client_id="zen-cli")
    site.house.door = {"access": replace(rules, issuers={"corp": corp})}
    (offered,) = (await browser.get("/sign-in", headers=programs)).json()["issuers"]
    assert (offered["name"], offered["client_id"]) == ("corp", "zen-cli")


async def test_strange_forms_are_refused(browser: httpx.AsyncClient) -> None:
    """Too large, of another kind, or with very many fields."""
    large = await browser.post("/sign-in", content="key=" + "a" * 5000, headers=FORM)
    assert large.status_code == 413
    other = await browser.post("/sign-in", json={"key": MEMBER})
    assert other.status_code == 415
    many = await browser.post("/sign-in", content="&".join(["a=b"] * 50), headers=FORM)
    assert many.status_code == 401
