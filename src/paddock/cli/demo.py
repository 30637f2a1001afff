"""`paddock demo`: work is submitted, its worker is killed halfway, and every job still ends exactly once; then a query
becomes Parquet, a mapping becomes a snapshot, and a database that is in use becomes one file.

Beats and leases are shortened, so that the rescue takes seconds and not a minute.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from paddock.cli.connection import Connect, Server, open_server, read_address
from paddock.cli.errors import CommandFailed
from paddock.cli.jobs.progress import ENDED, percent
from paddock.cli.jobs.watching import bars, draw
from paddock.cli.output import is_terminal
from paddock.cli.sample import write_sample, write_shop
from paddock.cli.wording import span

JOBS = 8
WORK_SECONDS = 8.0
STEPS = 16
START_SECONDS = 120.0
END_SECONDS = 120.0
LOOK_SECONDS = 0.25
# What `paddock serve` and `paddock worker` read: a dead worker is noticed after four seconds.
SHORT_LEASE = {"PADDOCK_BEAT_SECONDS": "1", "PADDOCK_LEASE_SECONDS": "4", "PADDOCK_LOG_LEVEL": "warning"}

# Even if this process is killed, what it started goes with it.
START = "import sys; from paddock.child import die_with; die_with(int(sys.argv.pop(1))); from paddock.cli import main; main()"

Job = Mapping[str, Any]


def demo(*, exit_: Annotated[bool, Parameter(name="--exit", negative=())] = False, data: Path | None = None) -> int:
    """Run Paddock, submit work, kill its worker with SIGKILL halfway, and see the work end exactly once.

    Parameters
    ----------
    exit_:
        End when the work has ended: 0 if every job completed exactly once, else 1.
    data:
        Data folder; a temporary one, removed at the end, unless told.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped in order
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts it in the background has it ignored
    with _folder(data) as folder, _paddock(folder) as running:
        server = open_server(Connect(data=folder))
        say(f"Paddock answers at {server.url}.", "")
        good = Show(server, folder, running).play()
        good = exporting(server, folder) and good
        good = dumping(folder) and good
        link = server.post("/api/tokens/self/sign-in-link", {})
        say("", f"Dashboard: {link['url']}", "           (signs in once, within five minutes)")
        if not exit_:
            say("It stays up until Ctrl-C; look around with", f"  paddock jobs list --data {folder}", "")
            with contextlib.suppress(KeyboardInterrupt):
                running.wait()
        return 0 if good else 1


@dataclass
class Show:
    server: Server
    folder: Path
    up: "subprocess.Popen[bytes]"
    seen: dict[str, Job] = field(default_factory=dict)
    killed: str | None = None
    killed_at: float = 0.0
    held: int = 0
    back_at: float | None = None

    def play(self) -> bool:
        ledger = self.folder / "demo.ledger"
        ledger.touch(mode=0o600)
        payload = {"progress": STEPS, "sleep_seconds": WORK_SECONDS, "save_each_step": True, "ledger": str(ledger)}
        work = [{"kind": "probe", "payload": payload, "tags": ["demo"]}] * JOBS
        ids = [str(job["id"]) for job in self.server.make_work("/api/jobs/batch", {"jobs": work})]
        say(f"Submitted {JOBS} jobs of {WORK_SECONDS:.0f} s in {STEPS} steps; each saves its place after every step,")
        say("and writes one line into a ledger when it is through.", "")
        watch = self._bars if is_terminal() else self._lines
        watch(ids)
        return self._tell(ids, ledger)

    def _bars(self, ids: Sequence[str]) -> None:
        with bars() as progress:
            tasks = {id: progress.add_task(id[-12:], total=100, status="", detail="") for id in ids}
            for changed in self._rounds(ids):
                for job in changed:
                    draw(progress, tasks[str(job["id"])], job)
                if self._kill_when_halfway():
                    progress.console.print(f"[red]kill -9[/]  the worker {self.killed} and all it runs")

    def _lines(self, ids: Sequence[str]) -> None:
        before: Counter[str] = Counter()
        for _ in self._rounds(ids):
            now = Counter(str(job["status"]) for job in self.seen.values())
            if now != before:
                say("  ".join(f"{status} {now[status]}" for status in ("pending", "claimed", "completed", "failed")))
                before = now
            if self._kill_when_halfway():
                say("", f"kill -9  the worker {self.killed} and all it runs", "")

    def _rounds(self, ids: Sequence[str]) -> Iterator[list[Job]]:
        """The jobs that changed since the last look, until all have ended."""
        deadline = time.monotonic() + END_SECONDS
        while True:
            before = dict(self.seen)
            for id in ids:
                if id not in before or before[id]["status"] not in ENDED:
                    self.seen[id] = self.server.get(f"/api/jobs/{id}")
                    self._notice(self.seen[id])
            yield [job for id, job in self.seen.items() if before.get(id) != job]
            if all(job["status"] in ENDED for job in self.seen.values()):
                return
            if time.monotonic() > deadline:
                raise CommandFailed(f"The jobs did not end within {END_SECONDS:.0f} s.", hint="`paddock doctor`.")
            time.sleep(LOOK_SECONDS)

    def _notice(self, job: Job) -> None:
        if self.killed and self.back_at is None and job["status"] == "claimed" and job["claimed_by"] != self.killed:
            self.back_at = time.monotonic()

    def _kill_when_halfway(self) -> bool:
        """Once: when the jobs have done half of their work on the average."""
        if self.killed or not self.seen:
            return False
        done = sum(percent(job) or 0 for job in self.seen.values()) / len(self.seen)
        holders = [job["claimed_by"] for job in self.seen.values() if job["status"] == "claimed"]
        if done < 50 or not holders:
            return False
        pid = worker_pid(self.up.pid)
        if pid is None:
            return False
        self.killed, self.killed_at, self.held = str(holders[0]), time.monotonic(), len(holders)
        os.kill(pid, signal.SIGKILL)
        return True

    def _tell(self, ids: Sequence[str], ledger: Path) -> bool:
        jobs = [self.server.get(f"/api/jobs/{id}") for id in ids]
        lines = Counter(line.split()[0] for line in ledger.read_text().splitlines())
        completed = sum(job["status"] == "completed" for job in jobs)
        moved = sum(bool(job["lost_count"]) or job["claimed_by"] != self.killed for job in jobs)
        once = all(lines[id] == 1 for id in ids)
        say("")
        if self.back_at is not None:
            say(
                f"{self.killed} was killed with {self.held} jobs in its hands. Its lease ran out; "
                f"{span(self.back_at - self.killed_at)} after the kill",
                "another worker had the first of them and went on from the step it had saved.",
            )
        say(f"{completed} of {len(jobs)} jobs completed; {moved} of them changed hands on the way.")
        say(
            f"The ledger has {sum(lines.values())} lines for {len(lines)} jobs: "
            + ("each ended exactly once." if once else "NOT each ended exactly once.")
        )
        say("", f"What happened to one of them (paddock why {ids[0]}):", "")
        self._why(ids[0])
        return completed == len(jobs) and once and self.killed is not None

    def _why(self, id: str) -> None:
        from paddock.cli.why import tell

        tell(self.server, id)


def exporting(server: Server, folder: Path) -> bool:
    """A query becomes a file on the disk, and a mapping a snapshot."""
    from paddock.cli.export import export
    from paddock.cli.mappings import apply
    from paddock.cli.sample import MAPPING, QUERY
    from paddock.cli.snapshots import create

    here, files = Connect(data=folder), folder.parent / "paddock-demo"
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir()
    late = files / "late.parquet"
    say("", "Now an export: the flights that were more than an hour late, as Parquet.", "")
    exported = export(QUERY, to=str(late), connect=here)
    mapping = files / "flights.yaml"
    mapping.write_text(MAPPING, "utf-8")
    say("", f"And a graph: {mapping} says what is a node and what an edge; a snapshot has the files of each.", "")
    apply(file=mapping, connect=here)
    made = create("flights", watch=True, connect=here)
    say(
        "",
        f"The Parquet of the export is {late}; read it with",
        f'  python -c "import duckdb; print(duckdb.sql(\\"FROM \'{late}\' LIMIT 5\\"))"',
        f"The snapshot's files are in the managed store, {folder / 'objects'};",
        f'  paddock snapshots manifest "flights v1" --data {folder}',
        "names each of them.",
    )
    return exported == 0 and made == 0


def dumping(folder: Path) -> bool:
    """A database becomes one file, while somebody goes on writing to it."""
    from paddock.cli.dump import dump, verify

    file = folder.parent / "paddock-demo" / "shop.sql.zst"
    say("", "Last a dump: a whole SQLite database as one file, from one moment, though it is being written to.", "")
    with buying(folder.parent / "paddock-sample" / "shop.db") as bought:
        dumped = dump("shop", output=[str(file)], connect=Connect(data=folder))
    say(
        "",
        f"Meanwhile {bought()} orders came in; the file has those of the moment that it names.",
        f"Is it whole? (paddock dump verify {file})",
        "",
    )
    return dumped == 0 and verify(file) == 0


@contextlib.contextmanager
def buying(shop: Path) -> Iterator[Callable[[], int]]:
    """One order after the other, until told to stop; then how many."""
    import apsw

    stop, bought = threading.Event(), 0

    def buy() -> None:
        nonlocal bought
        writer = apsw.Connection(str(shop))
        writer.set_busy_timeout(1000)
        try:
            while not stop.wait(0.005):
                writer.execute("INSERT INTO orders(customer, pieces) VALUES(1, 1)")
                bought += 1
        finally:
            writer.close()

    thread = threading.Thread(target=buy, daemon=True)
    thread.start()
    try:
        yield lambda: bought
    finally:
        stop.set()
        thread.join()


def worker_pid(up: int) -> int | None:
    """The worker among the children of `paddock up`."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if parent == up and b"paddock.child" in words and b"worker" in words:
                return int(entry.name)
    return None


@contextlib.contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    if data is not None:
        yield data.absolute()
        return
    # Directly under the temporary folder: PostgreSQL's account must be able to enter it.
    folder = Path(tempfile.mkdtemp(prefix="paddock-demo-"))
    folder.chmod(0o711)
    try:
        yield folder / "data"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _paddock(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`paddock up` as a process of its own, stopped in order at the end."""
    say(f"Starting `paddock up --data {folder}`: PostgreSQL, control plane, worker…")
    command = [sys.executable, "-c", START, str(os.getpid()), "up", "--data", str(folder), "--port", "0"]
    sample = folder.parent / "paddock-sample"
    say(f"Making {write_sample(sample):,} rows of sample data in {sample}…")
    (sample / "shop.db").unlink(missing_ok=True)
    write_shop(sample / "shop.db")
    named = {
        "PADDOCK_ENGINES": json.dumps({"duckdb": {"type": "duckdb", "roots": [str(sample)]}}),
        "PADDOCK_DUMPS_DATABASES": json.dumps({"shop": {"type": "sqlite", "path": str(sample / "shop.db")}}),
    }
    environment = {**os.environ, **SHORT_LEASE, **named}
    # In a session of its own: Ctrl-C reaches us first, and then it is stopped in order.
    folder.parent.mkdir(parents=True, exist_ok=True)
    said = folder.parent / "paddock-up.log"
    with said.open("wb") as log:
        running = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + START_SECONDS
        while read_address(folder) is None:
            if running.poll() is not None:
                raise CommandFailed("Paddock did not start.", hint=said.read_text("utf-8", "replace")[-2000:])
            if time.monotonic() > deadline:
                raise CommandFailed(f"Paddock did not answer within {START_SECONDS:.0f} s.")
            time.sleep(0.05)
        yield running
    finally:
        running.terminate()
        try:
            running.wait(60)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
