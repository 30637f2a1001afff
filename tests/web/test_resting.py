"""However many pages are open, keeping them fresh costs the control plane the same: each rests longer."""

import httpx2

from paddock.api.app import create_app
from paddock.api.hub import Watch
from paddock.api.tokens import NewToken, Tokens
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.web import pages
from tests.playing import submit


async def test_a_region_asks_for_a_longer_rest_the_more_pages_watch(core: Core) -> None:
    [job] = await submit(core)
    tokens = Tokens(core.db)
    _, secret = await tokens.create(NewToken(name="ann", role="admin", owner="ann"), actor="test")
    caller = await tokens.by_secret(secret)
    assert caller is not None
    app = create_app(core, Config(), host="127.0.0.1", routes=pages.routes())
    hub = app.state.plane.hub
    headers = {"Authorization": f"Bearer {secret}", "X-Paddock-Regions": "rows"}
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:

        async def rest() -> str:
            return (await client.get("/jobs")).headers["x-paddock-rest"]

        assert await rest() == "0"
        everything = [await hub.enter(caller, Watch(), batch=True, last_event_id=None) for _ in range(11)]
        one_job = [await hub.enter(caller, Watch(job=job), batch=True, last_event_id=None) for _ in range(5)]
        assert await rest() == "3"
        for watcher in [*everything, *one_job]:
            hub.leave(watcher)
        assert await rest() == "0"
