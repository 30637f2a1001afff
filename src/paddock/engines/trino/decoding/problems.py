"""What can be wrong with a page, and with a value that is right but fits no file."""

from paddock.jobs.errors import PermanentRunnerError, TransientResourceError


class BadPage(TransientResourceError):
    """What arrived is not what a server sends: a damaged transfer. The query is run again."""

    code = "bad_page"

    def __init__(self, message: str) -> None:
        super().__init__(
            message, hint="The query is run again. If this goes on, look for a proxy that cuts or changes answers."
        )


class OutOfRange(PermanentRunnerError):
    code = "value_out_of_range"

    def __init__(self, column: str, type_: str) -> None:
        super().__init__(
            f"Column '{column}' ({type_}) holds a time that nanoseconds cannot say: they reach from 1677 to 2262.",
            hint=f'Write CAST("{column}" AS timestamp(6)) in the query: microseconds reach every year Trino knows.',
        )


class NotInUtc(PermanentRunnerError):
    code = "cast_needed"

    def __init__(self, column: str, type_: str) -> None:
        super().__init__(
            f"Column '{column}' ({type_}) was sent as the wall clock of a zone, which is not exact.",
            hint=f"Write CAST(\"{column}\" AT TIME ZONE 'UTC' AS timestamp(6)) in the query.",
        )


class NotAsPairs(PermanentRunnerError):
    code = "cast_needed"

    def __init__(self, column: str, type_: str, cast: str | None) -> None:
        super().__init__(
            f"Column '{column}' ({type_}) is a map whose keys were sent as text that cannot be read back.",
            hint=f"Write {cast} in the query.",
        )


class Beyond(ValueError):
    """Inside the decoders: nanoseconds out of range; they know the column's name."""


class Zoned(ValueError):
    """Inside the decoders: a zone other than UTC."""
