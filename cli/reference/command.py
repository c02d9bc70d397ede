"""zen docs: the reference pages, written or checked."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import command
from cli.output.printing import Answer
from cli.paths import ROOT
from core.errors import ZenError


class StaleReference(ZenError):
    """Renew the pages and commit them."""

    code = "stale_reference"


@command
def docs(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if a page is stale.")
    ] = False,
) -> Answer:
    """Writes docs/reference/ from the tables of the code.

    \b
    Examples:
      zen docs
      zen docs --check
    """
    from cli.reference.pages import PAGES, stale, write

    directory = ROOT / "docs" / "reference"
    if check and (old := stale(directory)):
        raise StaleReference(f"stale in {directory}: {', '.join(old)}; renew with: zen docs")
    renewed = [] if check else write(directory)
    words = f"{len(PAGES)} pages, renewed: {', '.join(renewed) or 'none'}"
    return Answer({"pages": list(PAGES), "renewed": renewed}, [words])
