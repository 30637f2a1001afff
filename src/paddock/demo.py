"""`paddock demo`: work is submitted, its worker is killed halfway, and every job still ends exactly once; then a query
becomes Parquet, a mapping becomes a snapshot and that a graph, whose process is killed and found missing, a table of many small
files one of one, and a database that is in use becomes one file.

Beats and leases are shortened, so that the rescue takes seconds and not a minute.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from cyclopts import Parameter

from paddock.amounts import span
from paddock.cli.connection import Connect, Server, open_server
from paddock.cli.errors import CommandFailed, wrong_usage
from paddock.cli.jobs.progress import ENDED, percent
from paddock.cli.jobs.watching import bars, draw
from paddock.cli.output import is_terminal
from paddock.cli.sample import write_sample, write_shop
from paddock.client.finding import read_address
from paddock.ingest.sample import write_orders
from paddock.runtimes.folders import InstanceFolder

JOBS = 8
WORK_SECONDS = 8.0
STEPS = 16
START_SECONDS = 120.0
END_SECONDS = 120.0
LOOK_SECONDS = 0.25
# What `paddock serve` and `paddock worker` read: a dead worker is noticed after four seconds.
SHORT_LEASE = {"PADDOCK_BEAT_SECONDS": "1", "PADDOCK_LEASE_SECONDS": "4", "PADDOCK_LOG_LEVEL": "warning"}

# Even if this process is killed, what it started goes with it.
START = """
import sys
from paddock.child_processes.beginning import die_with
die_with(int(sys.argv.pop(1)))
from paddock.cli import main
main()
"""
# Shows a Parquet file.
READ = "import sys, duckdb; print(duckdb.read_parquet(sys.argv[1]).limit(5))"

Job = Mapping[str, Any]


def demo(*, exit_: Annotated[bool, Parameter(name="--exit", negative=())] = False, data: Path | None = None) -> int:
    """Run Paddock, submit work, kill its worker with SIGKILL halfway, and see the work end exactly once.

    Parameters
    ----------
    exit_:
        End when the work has ended: 0 if every job completed exactly once, else 1.
    data:
        Data folder; a temporary one, removed at the end, by default.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped in order
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts it in the background has it ignored
    with _folder(data) as folder, _paddock(folder) as running:
        server = open_server(Connect(data=folder))
        say(f"Paddock answers at {server.url}.", "")
        good = Show(server, folder, running).play()
        good = exporting(server, folder) and good
        good = asking_the_graph(folder) and good
        good = looking_after_itself(folder) and good
        good = maintaining(folder) and good
        good = ingesting(folder) and good
        good = dumping(folder) and good
        link = server.post("/api/tokens/self/sign-in-link", {})
        say("", f"Dashboard: {link['url']}", "           (signs in once, within five minutes)")
        if exit_:
            say("It ends now: what asks the server above works with a demo that stays up, without --exit.")
        else:
            say("It stays up until Ctrl-C; look around with", typed("jobs", "list", "--data", str(folder)), "")
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
        say("", "What happened to one of them:", typed("why", ids[0], "--data", str(self.folder)), "")
        self._why(ids[0])
        return completed == len(jobs) and once and self.killed is not None

    def _why(self, id: str) -> None:
        from paddock.cli.why import tell

        tell(self.server, id)


def exporting(server: Server, folder: Path) -> bool:
    """A query becomes a file on the disk, and a mapping a snapshot."""
    from paddock.cli.sample import MAPPING, QUERY
    from paddock.exports.commands.export import export
    from paddock.exports.commands.mappings import apply
    from paddock.exports.commands.snapshots import create

    here, files = Connect(data=folder), files_beside(folder)
    late = files / "late.parquet"
    say("", "Now an export: the flights that were more than an hour late, as Parquet.", "")
    exported = export(QUERY, to=str(late), force=True, connect=here)
    mapping = files / "flights.yaml"
    mapping.write_text(MAPPING, "utf-8")
    say("", f"And a graph: {mapping} says what is a node and what an edge; a snapshot has the files of each.", "")
    apply(file=mapping, connect=here)
    made = create("flights", watch=True, connect=here)
    say(
        "",
        f"The Parquet of the export is {late}; read it with",
        "  " + shlex.join([sys.executable, "-c", READ, str(late)]),
        f"The snapshot's files are in the managed store, {folder / 'objects'};",
        typed("snapshots", "manifest", "flights v1", "--data", str(folder)),
        "names each of them.",
    )
    return exported == 0 and made == 0


def asking_the_graph(folder: Path) -> bool:
    """The snapshot becomes a graph, which is asked and ranked, and stays for those who look around."""
    from paddock.cli.sample import IMPORTANT, ON_TIME
    from paddock.client import connect
    from paddock.instances.commands.asking import query
    from paddock.instances.commands.creating import create

    here = Connect(data=folder)
    say("", "And what are those files good for? A graph database of your own, for as long as you need it.", "")
    with connect(data=folder) as client:
        # By their ids: an earlier demo in the same folder left others with the same names.
        [snapshot] = client.snapshots.list(status="ready", most=1)
        if create(snapshot=snapshot["id"], name="flights", watch=True, connect=here):
            return False
        [graph] = client.instances.list(snapshot=snapshot, most=1)
        say(
            "",
            "By routes that leave on time on the average: how many airports can one reach from XHY, after how many flights?",
            "A join for each flight would not do, since nobody knows how many; in Cypher it is one line:",
            "",
            *ON_TIME.splitlines(),
            "",
        )
        asked = query(graph["id"], ON_TIME, connect=here)
        say(
            "", "And which five airports matter? PageRank over all routes becomes a property, and a query reads it:", ""
        )
        client.instances.connect(graph).algo.pagerank(
            node_labels=["Airport"], edge_types=["ROUTE"], write_property="rank"
        )
        ranked = query(graph["id"], IMPORTANT, connect=here)
    say("", "Ask it yourself:", typed("instances", "query", str(graph["id"]), IMPORTANT, "--data", str(folder)))
    return asked == 0 and ranked == 0


def looking_after_itself(folder: Path) -> bool:
    """The graph's process is killed; a background job finds that out and says so, and the graph is opened again."""
    from paddock.background.commands.ops import trigger
    from paddock.client import connect

    say(
        "",
        "What if the graph's process dies? Reconciliation compares what should run with what does, every five minutes.",
    )
    with connect(data=folder) as client:
        [graph] = client.instances.list(status="running", most=1)
        kill_instance(folder / "instances" / str(graph["id"]))
        say(f"kill -9  the process of {graph['name']}", "")
        trigger("reconciliation", reason="the demo killed a process", wait=True, connect=Connect(data=folder))
        error = client.instances.get(graph)["error"] or {}
        say(
            "",
            f"{graph['name']} is failed: {error.get('message')}. Its loaded database is still there, so it opens again:",
        )
        client.instances.reopen(graph)
        again = client.instances.wait_until_running(graph)
        say(f"{again['name']} is {again['status']}.")
    return error.get("code") == "UNEXPECTED_TERMINATION" and again["status"] == "running"


def kill_instance(folder: Path) -> None:
    """With SIGKILL, and waits until nothing of it is left."""
    place = InstanceFolder(folder.parent, UUID(folder.name))
    os.kill(int(place.read("run.json")["pid"]), signal.SIGKILL)
    deadline = time.monotonic() + END_SECONDS
    while True:
        with place.locked() as gone:
            if gone or time.monotonic() > deadline:
                return
        time.sleep(0.05)


def maintaining(folder: Path) -> bool:
    """An Iceberg table of many small files is looked at, planned for, brought in order, and looked at again."""
    from paddock.maintenance.commands.tables import look, maintain, plan
    from paddock.maintenance.sample import ANOTHER, CATALOG, FILES, TABLE

    here = Connect(data=folder)
    say("", f"Next an Iceberg table, {TABLE}: {FILES} small files, which every query opens one by one.", "")
    seen = look(TABLE, catalog=CATALOG, connect=here)
    say("", "What would help it? A plan changes nothing:", "")
    planned = plan(TABLE, catalog=CATALOG, connect=here)
    say("", "Then it is done, under a lock and a fence on the table itself, for others may write to it meanwhile:", "")
    done = maintain(TABLE, catalog=CATALOG, wait=True, connect=here)
    say("")
    look(TABLE, catalog=CATALOG, connect=here)
    say("", f"A second one, {ANOTHER}, is left as it is: bring it in order on the dashboard, under Tables.", "")
    other = look(ANOTHER, catalog=CATALOG, connect=here)
    return seen == 0 and planned == 0 and done == 0 and other == 0


def ingesting(folder: Path) -> bool:
    """Records of a source go through two hooks; a second run goes on where the first one ended."""
    from paddock.ingest.commands.ingest import rejected, run

    here = Connect(data=folder)
    say(
        "",
        "And records that come from elsewhere: a command of thirty lines fetches orders, page by page, two hooks check and",
        "enrich them, and what passed becomes Parquet.",
        "",
    )
    first = run("orders", limit=150, wait=True, connect=here)
    say("", "One of the hooks would not have all of them:", "")
    rejected("orders", 0, connect=here)
    say("", "That run had 150 orders at most. The next one goes on where it ended:", "")
    second = run("orders", wait=True, connect=here)
    say("", "All of it, as a view for DuckDB:", typed("ingest", "sql", "orders", "--data", str(folder)))
    return first == 0 and second == 0


def dumping(folder: Path) -> bool:
    """A database becomes one file, while somebody goes on writing to it."""
    from paddock.dumps.commands.dump import dump, verify

    file = files_beside(folder) / "shop.sql.zst"
    say("", "Last a dump: a whole SQLite database as one file, from one moment, though it is being written to.", "")
    with buying(files_beside(folder) / "sample" / "shop.db") as bought:
        dumped = dump("shop", output=[str(file)], force=True, connect=Connect(data=folder))
    say(
        "",
        f"Meanwhile {bought()} orders came in; the file has those of the moment that it names.",
        "Is it whole?",
        typed("dump", "verify", str(file)),
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


def files_beside(folder: Path) -> Path:
    """Where the demo's own files go: beside the data folder, under its name."""
    return folder.with_name(f"{folder.name}-demo")


def make_files_beside(folder: Path) -> Path:
    """A later demo writes its files over an earlier one's, and into no folder that is somebody else's."""
    files = files_beside(folder)
    mark = files / ".paddock-demo"
    try:
        if not mark.exists() and (files.exists() and any(files.iterdir())):
            raise wrong_usage(
                f"{files} is where the demo would put its files, and it holds what no demo left there.",
                "Move that away, or choose a data folder elsewhere with --data DIR.",
            )
        files.mkdir(parents=True, exist_ok=True)
        mark.touch()
    except OSError as problem:
        raise CommandFailed(
            f"{files} cannot be written: {problem.strerror}.", hint="Choose a data folder elsewhere with --data DIR."
        ) from None
    return files


@contextlib.contextmanager
def _paddock(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`paddock up` as a process of its own, stopped in order at the end."""
    from paddock.maintenance import sample as lakes

    files = make_files_beside(folder)
    say(f"Starting `paddock up --data {folder}`: PostgreSQL, control plane, worker…")
    command = [sys.executable, "-c", START, str(os.getpid()), "up", "--data", str(folder), "--port", "0"]
    sample = files / "sample"
    say(f"Making {write_sample(sample):,} rows of sample data in {sample}…")
    for name in ("shop.db", "shop.db-wal", "shop.db-shm"):
        (sample / name).unlink(missing_ok=True)
    write_shop(sample / "shop.db")
    lake = files / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    lakes.make_table(lake)
    lakes.make_table(lake, name=lakes.ANOTHER)
    named = {
        "PADDOCK_CATALOGS": json.dumps(tomllib.loads(lakes.settings_of(lake))["catalogs"]),
        "PADDOCK_ENGINES": json.dumps({"duckdb": {"type": "duckdb", "roots": [str(sample)]}}),
        "PADDOCK_DUMPS_DATABASES": json.dumps({"shop": {"type": "sqlite", "path": str(sample / "shop.db")}}),
    }
    orders = write_orders(files / "orders")
    named |= {
        "PADDOCK_INGEST_SOURCES": json.dumps({"orders": orders.source}),
        "PADDOCK_INGEST_HOOKS": json.dumps(orders.hooks),
    }
    environment = {**os.environ, **SHORT_LEASE, **named}
    # In a session of its own: Ctrl-C reaches us first, and then it is stopped in order.
    said = files / "paddock-up.log"
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


def typed(*words: str) -> str:
    """A command to paste, wherever `paddock` is: it is not on the PATH of who started the demo from a checkout."""
    here, on_path = shutil.which(sys.argv[0]), shutil.which("paddock")
    if here is None or Path(here).name != "paddock":
        program = [sys.executable, "-P", "-m", "paddock.cli"]
    else:
        program = ["paddock" if on_path and Path(on_path).samefile(here) else here]
    return "  " + shlex.join([*program, *words])


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
