"""A store that is not a file system."""

from __future__ import annotations

from stores.local import LocalStore


class Bucket(LocalStore):
    """No directory of it can be given to a job."""

    def directory(self, key: str) -> None:  # type: ignore[override]  # the port allows None
        """None: there is no such directory."""
