"""The probe: can the image be pulled, does a restricted pod start, and what does it reach that it should not?"""

import contextlib
import json
import socket
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from paddock.cluster.kinds import PROBE
from paddock.config import Config
from paddock.instances.running_on import installation_of
from paddock.instances.settings import InstanceSettings
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.kinds import Nothing
from paddock.jobs.outcomes import Outcome, again, done
from paddock.jobs.turn import Turn
from paddock.runtimes.kubernetes.job_manifest import Container, JobSpec
from paddock.runtimes.kubernetes.jobs import ContainerEnd, JobCluster, clean_container, run_container

MAIN = "probe"
# What an instance has no business to reach; the names are shown.
PLACES = {"the API server": "$API", "the metadata address": "169.254.169.254:80", "the internet": "1.1.1.1:443"}
POLICIES = (
    "Apply deploy/components/network-policies, and see that the cluster's network plugin enforces NetworkPolicies."
)


async def run_probe(turn: Turn[Nothing], config: Config) -> Outcome:
    settings = config.of(InstanceSettings)
    cluster = _cluster(config)
    assert settings.kubernetes_image is not None  # without it the runtime cannot be opened
    spec = JobSpec(
        namespace=settings.kubernetes_instance_namespace,
        name=f"{PROBE.replace('_', '-')}-{turn.id}",
        main=MAIN,
        containers=[
            Container(
                name=MAIN, image=settings.kubernetes_image, args=["cluster", "reach", json.dumps(places_of(config))]
            )
        ],
        labels={"paddock.io/egress": "none"},
        settings=settings.pods,
        timeout=timedelta(minutes=1),
    )
    end = await run_container(turn, spec, cluster)
    return done({"node": end.node, "findings": findings_of(end)})


async def clean_probe(turn: Turn[Nothing], config: Config) -> Outcome:
    namespace = config.of(InstanceSettings).kubernetes_instance_namespace
    gone = await clean_container(turn, namespace, _cluster(config))
    return done() if gone else again(timedelta(seconds=1), waiting_on="end of the probe", saved=turn.saved)


def _cluster(config: Config) -> JobCluster:
    installation = installation_of(config)
    if installation is None:
        raise PermanentRunnerError("Nothing of this control plane runs on a cluster.", code="no_cluster")
    return JobCluster(installation.client, installation.check)


def places_of(config: Config) -> dict[str, str]:
    places = dict(PLACES)
    if config.database_url is not None:
        url = urlsplit(config.database_url.get_secret_value())
        if url.hostname:
            places["the database"] = f"{url.hostname}:{url.port or 5432}"
    # This very process: pods get no addresses of services told.
    with contextlib.suppress(OSError):
        places["the control plane"] = f"{socket.gethostbyname(socket.gethostname())}:{config.port}"
    return places


def findings_of(end: ContainerEnd) -> list[dict[str, Any]]:
    found = [_finding("ok", f"A restricted pod with the instance image started on node {end.node}.")]
    reached = _reached(end.log)
    if reached is None:
        return [
            *found,
            _finding("warning", "The probe ran and said nothing that could be read.", "Read the log of its job."),
        ]
    wrong = [place for place, did in reached.items() if did]
    if wrong:
        found.append(_finding("warning", f"A pod that may reach nobody can reach {', '.join(wrong)}.", POLICIES))
    else:
        found.append(_finding("ok", f"A pod that may reach nobody reaches none of: {', '.join(reached)}."))
    return found


def _reached(text: str) -> dict[str, bool] | None:
    """The last line that is ours: what came before it may be anybody's."""
    for line in reversed(text.splitlines()):
        try:
            told = json.loads(line)["reached"]
            return {str(place): bool(did) for place, did in told.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return None


def _finding(level: str, message: str, what_to_do: str | None = None) -> dict[str, Any]:
    return {"check": "cluster probe", "level": level, "message": message, "what_to_do": what_to_do}
