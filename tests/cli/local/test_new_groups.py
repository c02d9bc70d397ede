"""A configuration that grows under a running local stack."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiohttp import web

from cli.local.new_groups import Regrouper
from config.errors import ConfigError
from config.load import load_settings
from config.settings import Settings
from core.errors import Fault
from sim.cloud.physics import CloudProject
from sim.cloud.server import build_app
from tests.sim.helpers import HandClock, eventually, make_world, mig_json

pytestmark = pytest.mark.slow

SETTINGS = load_settings(None, {})
OTHER = mig_json(name="other-mig", region="us-east4", zones=["us-east4-a"])


async def test_groups_follow_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit of the file makes the missing group in the running cloud, the world file has it for
    the next start, and the operator is told; a broken file changes nothing."""
    clock, config, file = HandClock(), tmp_path / "zen.yaml", tmp_path / "world.json"
    world: dict[str, object] = {"project": "zen-test", "migs": [mig_json()]}
    told: list[str] = []
    cloud = CloudProject(make_world(mig_json()), clock())

    def build(_: Settings) -> Mapping[str, object]:
        return world

    def loaded(path: Path, _: object) -> Settings:
        if path.read_text(encoding="utf-8") == "broken":
            raise ConfigError([Fault("clusters", "nothing", "a list")])
        return SETTINGS

    config.write_text("first", encoding="utf-8")
    monkeypatch.setattr("cli.local.new_groups.load_settings", loaded)
    monkeypatch.setattr("cli.local.new_groups.LOOK_S", 0.01)
    groups = Regrouper(config, file, build, lambda _, words: told.append(words))
    groups.write(SETTINGS)
    runner = web.AppRunner(build_app(cloud, clock, lambda: None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    follows = asyncio.create_task(groups.follow(f"http://127.0.0.1:{runner.addresses[0][1]}"))
    try:
        config.write_text("broken", encoding="utf-8")
        world["migs"] = [mig_json(), OTHER]
        await eventually(lambda: follows.done() or groups.seen == config.stat().st_mtime_ns)
        assert not follows.done(), follows
        assert [mig.spec.name for mig in cloud.migs(None, clock())] == ["zen-mig"]
        config.write_text("second", encoding="utf-8")
        await eventually(lambda: follows.done() or bool(told))
        assert not follows.done(), follows
        assert [mig.spec.name for mig in cloud.migs("us-east4", clock())] == ["other-mig"]
        assert json.loads(file.read_text(encoding="utf-8")) == world
        assert told == ["the configuration grew: other-mig was made in the pretend cloud"]
    finally:
        follows.cancel()
        await runner.cleanup()
