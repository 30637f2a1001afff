"""What a handler raises, and what the core refuses.

Drivers translate once, at their edge; here stands only what the translation may say.
"""

from datetime import timedelta

from paddock.jobs.model import Budget, JobId, JsonObject


class InfrastructureError(Exception):
    """Something outside the job failed. `code` is stable, the message is a sentence, `hint` says what to do, and `evidence` is
    what the adapter knows besides, for whoever keeps it."""

    code = "infrastructure_error"
    evidence: JsonObject | None = None

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.hint = hint


class TransientResourceError(InfrastructureError):
    """Back off and try again; `budget` says whose patience it spends."""

    code = "transient_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        budget: Budget = "work",
        delay: timedelta | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.budget: Budget = budget
        self.delay = delay


class PermanentRunnerError(InfrastructureError):
    """Fail now: trying again cannot help."""

    code = "permanent_error"


class UserMistake(PermanentRunnerError):
    """What was asked for cannot be done as it stands, and only whoever asked can change it: wrong SQL, a table that is
    denied, a value that no file holds. Nothing for an operator to mend, so it does not count against the installation."""

    code = "user_mistake"
    # Where in the text of the query, from 1; None: nobody knows.
    line: int | None = None
    column: int | None = None


class StaleAttempt(Exception):
    """The job moved on without this attempt: stop, and leave nothing behind."""

    def __init__(self, verdict: str = "stale_attempt") -> None:
        super().__init__(f"This attempt no longer holds its job ({verdict}).")
        self.verdict = verdict


class Refused(Exception):
    """The core will not do what was asked. `code` is stable; `status` is the HTTP status it translates to. After
    `retry_after` seconds the same request may well be accepted; None: nobody knows when."""

    status = 409
    retry_after: int | None = None

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        details: dict[str, object] | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.details = details or {}
        if status is not None:
            self.status = status


class LockHeld(Refused):
    """A live job holds the lock. The holder is named only to those who may see it (the API decides)."""

    def __init__(self, lock_key: str, holder: JobId | None, holder_owner: str | None) -> None:
        super().__init__(
            "lock_held",
            f"Another job holds the lock '{lock_key}'.",
            hint="Wait until it ends, or cancel it.",
        )
        self.holder = holder
        self.holder_owner = holder_owner


class Draining(Refused):
    status = 503

    def __init__(self, reason: str | None) -> None:
        super().__init__(
            "draining",
            "Paddock is in drain mode and takes no new work" + (f": {reason}" if reason else "."),
            hint="Try again later; queued work goes on.",
        )
