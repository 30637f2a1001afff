"""What the Job of a step is made of: `fetch` (ours) brings its inputs, `step` (theirs) works, `ship` (ours) takes its outputs.

Only ours have a token. `step` gets no service account, no network unless it may have it, a root that is read-only, and as much
memory, CPU and disk as its settings say. A pure function of what is known: the same try has the same content.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from paddock.ingest.source_settings import Hook, Source
from paddock.ingest.transfer_files import (
    CATALOG,
    CONFIG,
    EXIT_CODE,
    HIDDEN_COUNT,
    HIDDEN_VARIABLE,
    MESSAGES,
    MESSAGES_BYTES,
    SESSION,
    Step,
)
from paddock.runtimes.kubernetes.job_manifest import Container, JobSpec
from paddock.runtimes.kubernetes.pod_settings import PodSettings

IN, OUT = "/paddock/in", "/paddock/out"
EGRESS = "paddock.io/egress"
# What is left of the 63 characters of a Job's name for the name of the hook.
SHORT = 15
IN_BYTES, OUT_BYTES, TMP_BYTES = 2 << 30, MESSAGES_BYTES, 512 << 20
OURS_BYTES, OURS_CPU = 256 << 20, 0.1
# What the shell of a tap's image is told. Its standard output is a file. A tap that failed by itself may have made progress, so
# its exit code is a file too, and the pod goes on to `ship`. One that was killed, told to stop or is not there failed the pod.
TO_FILE = f"""
trap 'told=1; kill -TERM $tap 2> /dev/null' TERM
"$@" > {OUT}/{MESSAGES} & tap=$!
[ -z "$told" ] || kill -TERM $tap
wait $tap; code=$?
while kill -0 $tap 2> /dev/null; do wait $tap; code=$?; done
[ -z "$told" ] || exit 143
[ $code -lt 126 ] || exit $code
echo $code > {OUT}/{EXIT_CODE}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """What distinguishes one step of one batch from all others."""

    job: str
    namespace: str
    image: str
    transfer_url: str
    token: str
    draft: str
    source: str
    run: str
    batch: int
    step: Step
    hook: str | None = None
    limit: int | None = None
    has_session: bool = False
    pods: PodSettings


def job_spec(facts: StepFacts, settings: Source | Hook) -> JobSpec:
    assert settings.image is not None
    ours = {
        "PADDOCK_TRANSFER_URL": f"{facts.transfer_url}/internal/ingest/{facts.run}/{facts.batch}/{facts.step}",
        "PADDOCK_TRANSFER_TOKEN": facts.token,
        "PADDOCK_STEP": facts.step,
        "PADDOCK_DRAFT": facts.draft,
        **_folders(),
    }
    mounts = {IN: "in", OUT: "out", "/tmp": "tmp"}  # noqa: S108  the pod's own

    secrets = {
        variable: (place.secret, place.key)
        for variable, place in settings.secrets.items()
        if place.secret is not None and place.key is not None
    }

    def helper(name: str, secrets: Mapping[str, tuple[str, str]]) -> Container:
        told = {HIDDEN_COUNT: str(len(secrets))} if secrets else {}
        return Container(
            name=name,
            image=facts.image,
            args=["ingest", "transfer", name],
            environment={**ours, **told},
            secrets=secrets,
            mounts=mounts,
            memory_bytes=OURS_BYTES,
            cpu=OURS_CPU,
            ours=True,
        )

    step = Container(
        name="step",
        image=settings.image,
        command=_command(facts, settings),
        environment=_variables(facts),
        secrets=secrets,
        mounts=mounts,
        read_only=["in"],
        memory_bytes=settings.memory,
        cpu=settings.cpu,
    )
    # It tells the worker what they look like, so that nobody reads them in the log of the step.
    hidden = {f"{HIDDEN_VARIABLE}{n}": place for n, place in enumerate(secrets.values())}
    free = isinstance(settings, Source) or settings.network
    return JobSpec(
        namespace=facts.namespace,
        name=f"ingest-{facts.job}" + ("" if facts.hook is None else f"-{_short(facts.hook)}"),
        main="step",
        init=[helper("fetch", hidden), step],
        containers=[helper("ship", {})],
        volumes={"in": IN_BYTES, "out": OUT_BYTES, "tmp": TMP_BYTES},
        labels={EGRESS: "any" if free else "none"},
        settings=facts.pods,
        timeout=settings.timeout,
        memory_most=settings.most_memory,
    )


def _folders() -> Mapping[str, str]:
    return {"PADDOCK_IN": IN, "PADDOCK_OUT": OUT}


def _variables(facts: StepFacts) -> Mapping[str, str]:
    found = {
        **_folders(),
        "PADDOCK_SOURCE": facts.source,
        "PADDOCK_RUN": facts.run,
        "PADDOCK_BATCH": str(facts.batch),
        "HOME": "/tmp",  # noqa: S108  the pod's own
        "TMPDIR": "/tmp",  # noqa: S108
    }
    if facts.hook is not None:
        return {**found, "PADDOCK_HOOK": facts.hook}
    return {**found, "PADDOCK_SESSION": f"{IN}/{SESSION}", "PADDOCK_LIMIT": str(facts.limit)}


def _command(facts: StepFacts, settings: Source | Hook) -> Sequence[str]:
    """Empty: the image's own. A tap's is started through the image's shell."""
    if isinstance(settings, Hook) or settings.protocol == "files":
        return settings.command
    told = [*settings.command, *(["read"] if settings.protocol == "airbyte" else []), "--config", f"{IN}/{CONFIG}"]
    if settings.catalog is not None:
        told += ["--catalog", f"{IN}/{CATALOG}"]
    if facts.has_session:
        told += ["--state", f"{IN}/{SESSION}"]
    return ["sh", "-c", TO_FILE, "sh", *told]


def _short(hook: str) -> str:
    """Names of hooks may hold what a Job's may not, and be longer: then a part of their sum tells them apart."""
    if len(hook) <= SHORT and not hook.endswith("-") and "_" not in hook:
        return hook
    return f"{hook.replace('_', '-')[: SHORT - 7].rstrip('-')}-{sha256(hook.encode()).hexdigest()[:6]}"
