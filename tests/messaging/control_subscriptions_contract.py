"""What every adapter of the control subscriptions does: Pub/Sub's and the one in virtual time."""

from __future__ import annotations

from core.names import Names
from core.ports import ControlSubscriptions

NAMES = Names()
VM = "pipeline-zen-jobs-2xa100-40gb-us-central1-vm-bcdf"


class ControlSubscriptionsContract:
    """Inherited by the tests of each adapter, which give it a port."""

    async def test_made_twice_is_made_once(self, port: ControlSubscriptions) -> None:
        """A leader that died after making it is followed by one that makes it again."""
        for nonce in ("n1", "n1", "n2"):
            await port.make(VM, nonce)
        wanted = [NAMES.control_subscription(VM, nonce) for nonce in ("n1", "n2")]
        assert sorted(await port.all()) == wanted

    async def test_removed_twice_is_removed_once(self, port: ControlSubscriptions) -> None:
        """Nor is it an error to remove what never was."""
        await port.make(VM, "n1")
        for nonce in ("n1", "n1", "never"):
            await port.remove(NAMES.control_subscription(VM, nonce))
        assert await port.all() == []

    async def test_only_control_subscriptions_are_listed(self, port: ControlSubscriptions) -> None:
        """The lasting ones of the deployment are not among them."""
        assert await port.all() == []
