"""The configuration over REST: what is in force, what a file would change, back to before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import msgspec
import pytest

from config.reload import Reader
from scheduler.api.examples import example_of
from scheduler.api.http.app import create_app, endpoints
from scheduler.api.routes.config import ConfigRoutes
from scheduler.api.services import Services
from tests.access import OWNER, bearer, known
from tests.config.test_load import MINIMAL
from tests.config.test_reload import TWO
from tests.db.builders import Maker, put, submitted
from tests.scheduler.api.fakes import House as Api
from tests.scheduler.api.fakes import assert_error
from tests.scheduler.operations.test_live_config import E6, TYPO, Desk, House

PATH = "/api/v1/config"
OPERATOR, OPERATOR_KEY = known("operator0000", ("*", "operator"))


@pytest.fixture
async def house() -> House:
    made = House()
    made.start(MINIMAL)
    await made.pass_s(1)
    return made


@pytest.fixture
def desk(house: House) -> Desk:
    return house.desks[0]


@pytest.fixture
def services(desk: Desk) -> Services:
    return replace(Api(keys=(OPERATOR_KEY,)).services(), config=desk.live)


@pytest.fixture
async def client(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(services))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://zen", headers=bearer(OWNER)
    ) as made:
        yield made


def document(text: str) -> dict[str, object]:
    return dict(Reader({}).file(text.encode(), "zen.yaml").document)


async def test_in_force(client: httpx.AsyncClient) -> None:
    """The version with its whole document and the file's standing; no secret in either."""
    answer = await client.get(PATH)
    body = answer.json()
    assert body["in_force"]["version"] == 1
    assert body["in_force"]["document"]["clusters"]["1xl4"]["vm_max"] == 3
    assert (body["file"]["path"], body["file"]["state"]) == ("/etc/zen/zen.yaml", "in force")
    assert "secret" not in answer.text
    status = (await client.get("/api/v1/status")).json()["config"]
    assert (status["version"], status["state"], status["faults"]) == (1, "in force", 0)


async def test_a_refused_file_is_shown(house: House, desk: Desk, client: httpx.AsyncClient) -> None:
    """The faults of the file that is not in force, and that it is not."""
    desk.paper.write(TYPO)
    await house.pass_s(1)
    file = (await client.get(PATH)).json()["file"]
    assert file["state"] == "refused"
    assert any("vm_mxa" in fault["field"] for fault in file["faults"])
    assert (await client.get("/api/v1/status")).json()["config"]["state"] == "refused"


async def test_check_tells_and_changes_nothing(house: House, client: httpx.AsyncClient) -> None:
    """Changes, faults of the document, and faults that only the service knows."""
    good = await client.post(f"{PATH}/check", json={"document": document(E6), "source": "my.yaml"})
    assert good.json() == {
        "ok": True,
        "in_force": 1,
        "diff": ["clusters.1xl4.vm_max: 3 → 6"],
        "faults": [],
    }
    bad = (await client.post(f"{PATH}/check", json={"document": {"nonsense": 1}})).json()
    assert not bad["ok"]
    assert any("nonsense" in fault["field"] for fault in bad["faults"])
    await put(house.store, submitted(Maker().job("j", cluster="1xl4")))
    gone = document(TWO)
    assert isinstance(gone["clusters"], dict)
    del gone["clusters"]["1xl4"]
    busy = (await client.post(f"{PATH}/check", json={"document": gone})).json()
    assert "1 job" in busy["faults"][0]["got"]
    assert len(await house.history()) == 1


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("check", {"document": 1}, "document"),
        ("check", {"document": {}, "source": ""}, "source"),
        ("check", {"what": 1}, "what"),
        ("check", [], "body"),
        ("rollback", {"version": "1"}, "version"),
        ("rollback", {"version": True}, "version"),
        ("rollback", {"version": 2**40}, "version"),
        ("rollback", {"version": 1, "by": "a\nb"}, "by"),
        ("rollback", {}, "version"),
    ],
)
async def test_bad_bodies_are_told(
    client: httpx.AsyncClient, path: str, body: object, field: str
) -> None:
    """Field, what came, what was expected."""
    answer = await client.post(f"{PATH}/{path}", json=body)
    error = assert_error(answer, 422, "bad_input")
    assert field in str(error["faults"])


async def test_history_and_rollback(house: House, desk: Desk, client: httpx.AsyncClient) -> None:
    """Versions page by page; a rollback is a version of its own; repeating it changes nothing."""
    desk.paper.write(E6)
    await house.pass_s(1)
    page = (await client.get(f"{PATH}/versions", params={"page_size": 1})).json()
    assert ([row["version"] for row in page["versions"]], page["total"]) == ([2], 2)
    rest = (await client.get(f"{PATH}/versions", params={"before": page["next_before"]})).json()
    assert [row["version"] for row in rest["versions"]] == [1]
    whole = (await client.get(f"{PATH}/versions/1")).json()
    assert whole["document"]["clusters"]["1xl4"]["vm_max"] == 3
    done = (await client.post(f"{PATH}/rollback", json={"version": 1, "by": "ada"})).json()
    assert (done["version"], done["changed"], done["file"]["state"]) == (3, True, "differs")
    assert done["diff"] == ["clusters.1xl4.vm_max: 6 → 3"]
    again = (await client.post(f"{PATH}/rollback", json={"version": 1})).json()
    assert (again["version"], again["changed"], again["diff"]) == (3, False, [])
    for missing in (f"{PATH}/versions/9",):
        assert_error(await client.get(missing), 404, "not_found")
    assert_error(await client.post(f"{PATH}/rollback", json={"version": 9}), 404, "not_found")
    assert_error(await client.get(f"{PATH}/versions/x"), 422, "bad_input")


async def test_a_rollback_that_cannot_be(
    house: House, desk: Desk, client: httpx.AsyncClient
) -> None:
    """The reasons come back as faults."""
    desk.paper.write(TWO)
    await house.pass_s(1)
    await put(house.store, submitted(Maker().job("j", cluster="2xl4")))
    error = assert_error(
        await client.post(f"{PATH}/rollback", json={"version": 1}), 422, "bad_config"
    )
    assert "2xl4" in str(error["faults"])


async def test_before_the_database_answered() -> None:
    """Nothing is claimed to be in force that is not known to be."""
    desk = House().start(MINIMAL)
    app = create_app(replace(Api().services(), config=desk.live))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://zen", headers=bearer(OWNER)
    ) as client:
        assert_error(await client.get(PATH), 503, "database_unavailable")
        assert (await client.get("/api/v1/status")).json()["config"]["version"] == 0


def test_examples_are_true(services: Services) -> None:
    """Every example of the documentation has the shape that it documents."""
    mine = [e for e in endpoints(services) if e.tag == ConfigRoutes.tag]
    assert len(mine) == 5
    for endpoint in mine:
        for answer in endpoint.answers.values():
            assert answer.shape is not None
            msgspec.convert(example_of(answer.shape), answer.shape)


async def test_an_operator_rolls_no_roles_back(
    house: House, desk: Desk, client: httpx.AsyncClient
) -> None:
    """Else an operator whose role the configuration took away would take it back."""
    given = "access:\n  users: {eve@example.com: [{tenant: '*', role: admin}]}\n"
    for text in (MINIMAL + given, E6):
        desk.paper.write(text)
        await house.pass_s(1)
    operator = bearer(OPERATOR)
    refused = await client.post(f"{PATH}/rollback", json={"version": 2}, headers=operator)
    body = assert_error(refused, 403, "forbidden")
    assert "grants" in str(body["error"])
    assert len(await house.history()) == 3
    same = await client.post(f"{PATH}/rollback", json={"version": 1}, headers=operator)
    assert same.status_code == 200, same.text
    admin = await client.post(f"{PATH}/rollback", json={"version": 2})
    assert admin.status_code == 200, admin.text
