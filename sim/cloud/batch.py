"""Google's batch requests: several calls in one multipart body, as gcloud makes them."""

import email.parser
import email.policy
import json
from email.message import EmailMessage
from http.client import responses
from typing import Final

import aiohttp
from aiohttp import web

from sim.cloud.model import ApiError
from sim.cloud.wire import error_body

PARTS_MAX: Final = 1_000
_BOUNDARY: Final = "batch_of_answers"


def add_routes(app: web.Application) -> None:
    app.router.add_post("/batch/compute/v1", _batch)


async def _batch(request: web.Request) -> web.Response:
    """Each part is asked of this server itself, in order; the answers come in the same order."""
    parts = _parts(request.headers.get("Content-Type", ""), await request.read())
    if parts is None or len(parts) > PARTS_MAX:
        expected = f"expected multipart/mixed of at most {PARTS_MAX} calls"
        refused = ApiError(400, "badRequest", expected)
        return web.json_response(error_body(refused), status=400)
    async with aiohttp.ClientSession(f"{request.scheme}://{request.host}") as session:
        answers = [await _answer(session, part) for part in parts]
    body = "".join(f"--{_BOUNDARY}\r\n{answer}\r\n" for answer in answers)
    return web.Response(
        body=f"{body}--{_BOUNDARY}--\r\n".encode(),
        headers={"Content-Type": f"multipart/mixed; boundary={_BOUNDARY}"},
    )


def _parts(kind: str, raw: bytes) -> list[EmailMessage] | None:
    parser = email.parser.BytesParser(policy=email.policy.HTTP)
    whole = parser.parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + raw)
    if not whole.is_multipart():
        return None
    return [part for part in whole.iter_parts() if isinstance(part, EmailMessage)]


async def _answer(session: aiohttp.ClientSession, part: EmailMessage) -> str:
    text = part.get_payload(decode=True)
    call = text.decode(errors="replace") if isinstance(text, bytes) else ""
    head, _, body = call.replace("\r\n", "\n").partition("\n\n")
    verb, path, *_ = [*head.split("\n")[0].split(" "), "", ""]
    if not path.startswith("/compute/"):
        status, said = 400, json.dumps(error_body(ApiError(400, "badRequest", f"call: {path!r}")))
    else:
        sent = {"Content-Type": "application/json"}
        async with session.request(verb, path, data=body or None, headers=sent) as real:
            status, said = real.status, await real.text()
    content_id = str(part.get("Content-ID", "")).strip("<>")
    return (
        f"Content-Type: application/http\r\nContent-ID: <response-{content_id}>\r\n\r\n"
        f"HTTP/1.1 {status} {responses.get(status, '')}\r\n"
        f"Content-Type: application/json; charset=UTF-8\r\nContent-Length: {len(said.encode())}"
        f"\r\n\r\n{said}"
    )
