"""The sign-in page, before and after: plain HTML without scripts."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from core.access import Principal
from core.access_rules import OidcIssuer
from scheduler.api.http.way_back import SIGN_IN, WAY_BACK

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 30rem; margin: 12vh auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; }
form, p { margin: 1rem 0; }
label { display: block; margin-bottom: .3rem; }
input, button, .button { font: inherit; padding: .5rem .75rem; border: 1px solid #8888;
  border-radius: 6px; box-sizing: border-box; }
input { width: 100%; }
button, .button { display: inline-block; margin-top: .6rem; cursor: pointer; background: #8882;
  color: inherit; text-decoration: none; }
.problem { border-left: 4px solid #c33; padding-left: .75rem; }
td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
SIGN_IN_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
"""One style, no scripts, no frames, forms to ourselves."""


@dataclass(frozen=True, slots=True)
class SignedInAs:
    """Who looks at the page."""

    principal: Principal
    csrf: str


def signed_out_page(
    issuers: Iterable[OidcIssuer], problem: str = "", way_back: str = SIGN_IN
) -> str:
    """The ways to sign in, and where to go then."""
    told = f"<p class=problem role=alert>{html.escape(problem)}</p>" if problem else ""
    offered = "".join(
        f"<p><a class=button href='/sign-in/start?issuer={quote(one.name)}"
        f"&amp;{WAY_BACK}={quote(way_back, safe='')}'>"
        f"Sign in with {html.escape(one.name)}</a></p>"
        for one in issuers
        if one.client_id
    )
    return _page(
        "Sign in",
        f"{told}{offered}<form method=post action={SIGN_IN}>"
        f"<input type=hidden name={WAY_BACK} value='{html.escape(way_back)}'>"
        "<label for=key>API key</label>"
        "<input id=key name=key type=password autocomplete=off required placeholder='zen_…'>"
        "<button>Sign in with a key</button></form>",
    )


def signed_in_page(who: SignedInAs) -> str:
    """Who one is, and what for."""
    rows = "".join(
        f"<tr><td>{html.escape(tenant)}<td>{html.escape(', '.join(sorted(rights)))}"
        for tenant, rights in sorted(_by_tenant(who.principal).items())
    )
    table = f"<table><tr><th>Tenant<th>Rights{rows}</table>" if rows else "<p>No role yet.</p>"
    return _page(
        f"Signed in as {who.principal.label}",
        f"<p>{html.escape(who.principal.name)}, user {html.escape(who.principal.user_id)}</p>"
        f"{table}<p><a href=/docs>API</a></p>"
        "<form method=post action=/sign-out>"
        f"<input type=hidden name=csrf value='{html.escape(who.csrf)}'>"
        "<button>Sign out</button></form>",
    )


def _by_tenant(principal: Principal) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for right, tenants in principal.allowed.items():
        for tenant in tenants.only or ("every tenant",):
            found.setdefault(tenant, []).append(str(right))
    return found


def _page(title: str, body: str) -> str:
    said = html.escape(title)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{said}</title>"
        "<meta name=viewport content='width=device-width'>"
        f"<style>{_STYLE}</style><h1>{said}</h1>{body}</html>"
    )
