"""The way back to a page that a browser asked for before it signed in."""

from __future__ import annotations

import re

from starlette.requests import Request

SIGN_IN = "/sign-in"
WAY_BACK = "next"
"""Field of the sign-in form: where to go afterwards."""
WAY_BACK_MAX = 500
_OURS = re.compile(r"/(?![/\\])[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")
"""A path of this service: `//host` and `/\\host` would lead elsewhere."""


def safe_way_back(text: str) -> str:
    """The path, if it is one of ours; else the sign-in page, which says who has signed in."""
    return text if len(text) <= WAY_BACK_MAX and _OURS.fullmatch(text) else SIGN_IN


def wants_page(request: Request) -> bool:
    """Whether a person looks at the answer."""
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


def asked_for(request: Request) -> str:
    """What the browser asked for, as a way back."""
    query = request.url.query
    return safe_way_back(f"{request.url.path}?{query}" if query else request.url.path)
