"""What the routes of one control plane share."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated
from uuid import UUID

from fastapi import Depends
from starlette.requests import Request

from paddock.api.hub import Hub
from paddock.api.tokens import Tokens
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.metrics import Metrics


@dataclass
class ControlPlane:
    core: Core
    config: Config
    tokens: Tokens
    metrics: Metrics
    hub: Hub
    # Searches that are not answered yet, by the token they came with.
    searches: Counter[UUID] = field(default_factory=Counter)
    # Set once this process is to stop: whoever waits in a call is answered now.
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    # Whether this process's own loops still turn: /health asks. Whoever runs them says so.
    healthy: Callable[[], bool] = lambda: True
    # What whoever keeps the database says is wrong with it: /health repeats it.
    database_notice: Callable[[], str | None] = lambda: None
    # What those loops last failed with, and have not got over since: /ready asks.
    pass_problems: Callable[[], Sequence[Exception]] = lambda: ()


async def _plane(request: Request) -> ControlPlane:
    plane: ControlPlane = request.app.state.plane
    return plane


ThePlane = Annotated[ControlPlane, Depends(_plane)]
