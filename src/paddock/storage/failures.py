"""What can go wrong with a store, in one place: the code, whether to try again, and the sentence.

The text of a library's error is never passed on: an address in it may carry a signature.
"""

import errno

from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError

# EFBIG: a limit on the size of files, which to a writer is the same as no more room.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENOTDIR, errno.EISDIR})


def disk_full(where: str) -> InfrastructureError:
    return TransientResourceError(
        f"There is no room left {where}.",
        code="disk_full",
        hint="Free some disk space or give Paddock more of it; the job tries again.",
    )


def unavailable(url: str, detail: str) -> InfrastructureError:
    return TransientResourceError(
        f"The store {url} does not answer as it should: {detail}.",
        code="store_unavailable",
        hint="Paddock tries again by itself. If it stays so, see whether the store runs and can be reached from here.",
        budget="cluster",
    )


def denied(url: str, detail: str) -> InfrastructureError:
    return PermanentRunnerError(
        f"The store {url} refuses Paddock: {detail}.",
        code="store_denied",
        hint="Check the credentials in Paddock's environment, and that they may read, write, list and delete there.",
    )


def no_bucket(url: str) -> InfrastructureError:
    return PermanentRunnerError(
        f"The bucket or container of the store {url} does not exist.",
        code="store_no_bucket",
        hint="Create it, or correct the store's URL; Paddock makes no buckets.",
    )


def not_found(url: str, key: str) -> InfrastructureError:
    return PermanentRunnerError(
        f"'{key}' is not in the store {url}.",
        code="store_not_found",
        hint="It was deleted, or this Paddock looks at another store than the one that wrote it.",
    )


def incomplete(sentence: str) -> InfrastructureError:
    return TransientResourceError(
        sentence,
        code="upload_incomplete",
        hint="Paddock writes it again. If it stays so, the disk or the store loses data.",
    )


class UploadGone(TransientResourceError):
    """An upload by parts that was aborted, or that the store lost parts of: only a new one helps."""

    code = "upload_gone"


def upload_gone(url: str, key: str) -> UploadGone:
    return UploadGone(
        f"The upload of '{key}' is no longer in the store {url}, or not all of its parts are.",
        hint="Another attempt ended or aborted it, or the store's own rules did. Paddock writes it again.",
    )


def bad_key(key: str) -> InfrastructureError:
    return PermanentRunnerError(
        f"{key[:200]!r} cannot be a key of a store.",
        code="store_bad_key",
        hint="Between the slashes must stand names of at most 240 bytes, not '.', not '..', without control characters "
        "and without '#1' at the end.",
    )


def of_folder(url: str, key: str, problem: OSError) -> InfrastructureError:
    reason = problem.strerror or type(problem).__name__
    if problem.errno in NO_ROOM:
        return disk_full(f"in the store {url}")
    if problem.errno == errno.ENOENT:
        return not_found(url, key)
    if problem.errno in (errno.ELOOP, errno.ENOTDIR):
        return denied(url, f"on the way to '{key}' stands a symbolic link or a file where a folder should be")
    if problem.errno in DENIED:
        return denied(url, f"{reason}, at '{key}'")
    return unavailable(url, f"{reason}, at '{key}'")
