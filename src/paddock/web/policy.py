"""A kind's policy in sentences: what happens when it fails, takes too long, or loses its worker, and who may submit it."""

from collections.abc import Iterator
from datetime import timedelta

from paddock.amounts import listed
from paddock.jobs.figures.overviews import KindSeen
from paddock.jobs.kinds import Kind
from paddock.web import words
from paddock.web.words import plural


def policy_of(seen: KindSeen, declared: Kind | None) -> list[tuple[str, str]]:
    """Pairs of what it is about and what holds. `declared` is None for a kind that this control plane no longer knows."""
    return [
        ("Submitted by", _submitters(seen)),
        ("Failures", _failures(seen)),
        ("Lost workers", _losses(seen)),
        ("Time-outs", _timeouts(seen)),
        ("At once", _concurrency(seen, declared)),
        ("Locks", _locks(declared)),
        ("Cleanup", _cleanup(seen)),
        *_shutdown(declared),
    ]


def in_short(seen: KindSeen) -> str:
    """The same in one line, for a list."""
    parts = [
        "no retry" if not seen.failure_limit else f"{plural(seen.failure_limit, 'retry', 'retries')} {_apart(seen)}",
        *_short_timeouts(seen),
        "one at a time" if seen.serial else "",
        "" if seen.may_repeat else "never repeated",
        "cleans up" if seen.has_cleanup else "",
    ]
    return ", ".join(part for part in parts if part)


def duration(value: timedelta) -> str:
    """Limits are round: 2 s, not 2.0 s."""
    return words.duration(value).replace(".0 ", " ")


def _apart(seen: KindSeen) -> str:
    first, cap = duration(seen.backoff_first), duration(seen.backoff_cap)
    return f"{first} apart" if first == cap else f"{first} to {cap} apart"


def _submitters(seen: KindSeen) -> str:
    if seen.submit is None:
        return "nobody: only Paddock itself makes them" + (", and runs them inside `paddock serve`" * seen.internal)
    return f"the roles {listed(sorted(seen.submit))}" if len(seen.submit) > 1 else f"the role {listed(seen.submit)}"


def _failures(seen: KindSeen) -> str:
    cluster = f"Failures because a cluster is overloaded are retried {seen.cluster_limit} times more."
    if not seen.failure_limit:
        return f"The first transient failure ends it. {cluster}"
    retries = plural(seen.failure_limit, "retry", "retries")
    return f"Up to {retries} of transient failures, {_apart(seen)}; saved progress starts the count again. {cluster}"


def _losses(seen: KindSeen) -> str:
    if not seen.may_repeat:
        return "It must not be repeated: if its worker dies it fails as `worker_lost`."
    late = f" {duration(seen.patience)} after its worker's death" if seen.patience else " at once"
    return f"Given back{late}, up to {plural(seen.loss_limit, 'time')}; then it fails as `worker_lost`."


def _timeouts(seen: KindSeen) -> str:
    found = [
        f"a turn may take {duration(seen.turn_timeout)}" if seen.turn_timeout else "",
        f"all of it {duration(seen.total_timeout)}" if seen.total_timeout else "",
        f"{duration(seen.stall_timeout)} without saved progress" if seen.stall_timeout else "",
    ]
    text = listed([part for part in found if part])
    return text[:1].upper() + text[1:] + "." if text else "None: it may take as long as it wants."


def _short_timeouts(seen: KindSeen) -> Iterator[str]:
    if seen.turn_timeout:
        yield f"turn ≤ {duration(seen.turn_timeout)}"
    if seen.total_timeout:
        yield f"whole ≤ {duration(seen.total_timeout)}"
    if seen.stall_timeout:
        yield f"stall ≤ {duration(seen.stall_timeout)}"


def _concurrency(seen: KindSeen, declared: Kind | None) -> str:
    if seen.serial:
        return "One at a time, anywhere."
    if declared is not None and declared.concurrency is not None:
        return f"{declared.concurrency} on each worker{_shares(declared)}."
    return "As many as workers have slots."


def _shares(declared: Kind) -> str:
    """What a share's key is only the kind knows; of Paddock's own kinds it is a receiver."""
    if declared.shares is None:
        return ""
    return f", of which one owner has {declared.shares.of_owner} at most and one receiver {declared.shares.of_key}"


def _locks(declared: Kind | None) -> str:
    if declared is None:
        return "Unknown: no code here declares this kind."
    if declared.lock_key is None:
        return "None."
    return "One live job for each lock, which its payload names; a second one is refused, with the holder's name."


def _cleanup(seen: KindSeen) -> str:
    if not seen.has_cleanup:
        return "It leaves nothing behind to clean up."
    return "A cleanup job runs when it was ever started and ends in any other way than done."


def _shutdown(declared: Kind | None) -> Iterator[tuple[str, str]]:
    if declared is not None:
        after = "then it fails" if declared.fail_on_shutdown else "then it is given back and nothing is counted"
        yield "Shutdown", f"Its worker lets it run on for {duration(declared.grace)}; {after}."
