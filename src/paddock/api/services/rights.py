"""What a schedule may run in its owner's name, at an hour when nobody asks.

A schedule has no token. Its owner's rights at a run are those of the tokens that they have then: one of them alone must
allow it, as it would allow a request for the same. So whoever loses a grant, or their token, loses it for their schedules
too.
"""

from typing import Any

from pydantic import BaseModel

from paddock.api.errors import ApiError
from paddock.api.services.submitting import check_uses
from paddock.api.tokens import Caller, callers_of
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.jobs.errors import PermanentRunnerError, Refused
from paddock.jobs.kinds import Kind
from paddock.jobs.turn import Turn


async def check_caller(core: Core, config: Config, caller: Caller, kind: Kind, payload: BaseModel) -> None:
    check_uses(config, caller, kind, payload)
    if kind.allowed is not None:
        await kind.allowed(core, config, caller, payload)


async def check_run(core: Core, config: Config, kind: Kind, turn: Turn[Any]) -> None:
    """Fails the job of a schedule whose owner may not have this any more."""
    callers = await callers_of(core.db, turn.owner)
    if callers is None:
        return
    refused: ApiError | Refused | None = None
    for caller in callers:
        try:
            await check_caller(core, config, caller, kind, turn.payload)
        except (ApiError, Refused) as problem:
            refused = refused or problem
        else:
            return
    if refused is None:
        raise PermanentRunnerError(
            f"'{turn.owner}' has no token that is still good, so nothing runs in their name.",
            code="owner_without_token",
            hint="Make them a token with `paddock tokens create`, or delete the schedule.",
        )
    raise PermanentRunnerError(
        f"'{turn.owner}' may not run this any more. {refused.message}", code=refused.code, hint=refused.hint
    )


def check_owner_named(caller: Caller, named: str | None) -> None:
    """A payload may say whose the work is to be."""
    if named is not None and not caller.sees(named):
        raise ApiError(
            403,
            "owner_not_allowed",
            f"Only operators may make something in the name of another; you are '{caller.owner}'.",
            hint="Leave `owner` out: it is yours then.",
        )
