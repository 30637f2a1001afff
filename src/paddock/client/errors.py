"""What a client is told instead of an answer."""

from collections.abc import Mapping
from typing import Any

Job = dict[str, Any]


class PaddockError(Exception):
    """`code` is stable, the message is a sentence, `hint` says what to do. `status` 0: no answer at all."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.details = dict(details or {})
        self.request_id = request_id
        self.retry_after = retry_after

    @property
    def passes(self) -> bool:
        """Whether the same question may be answered in a moment: nobody answers, or one who cannot at present."""
        return self.status in (0, 429) or self.status >= 500

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]" + (f"\n{self.hint}" if self.hint else "")


class Unreachable(PaddockError):
    """Nobody answered: nothing is known about what was asked."""

    def __init__(self, server: str, problem: Exception) -> None:
        super().__init__(
            0,
            "unreachable",
            f"{server} does not answer ({type(problem).__name__}).",
            hint="Is it running? `paddock up` starts one on this machine.",
        )


class NotFinished(PaddockError):
    """The time to wait is over and the job is not."""

    def __init__(self, job: Job) -> None:
        super().__init__(0, "not_finished", f"Job {job['id']} is still {job['status']}.", details={"job": job})
        self.job = job
