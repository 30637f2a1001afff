"""The manifests on a real API server: each field is one that it knows, nothing breaks a rule of it, and the Roles give what
they are to give and no more."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from tests.cluster.programs import KEDA, PROMETHEUS, definitions
from tests.cluster.server import Cluster, KubectlFailed
from tests.kubernetes.conftest import MakeNamespace
from tests.kubernetes.rendered import EVERYTHING, HOME, INGEST, INSTANCES, OVERLAYS, as_text, moved, of_kind, rendered

STRICT = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
# Of others' definitions those that deploy/ uses.
FOREIGN = {
    KEDA: ("scaledobjects", "scaledjobs", "triggerauthentications"),
    PROMETHEUS: ("servicemonitors", "prometheusrules"),
}
# What Kubernetes lets everybody do: ask what they may.
EVERYBODY = {"authorization.k8s.io", "authentication.k8s.io"}


@pytest.fixture(scope="module")
def foreign(cluster: Cluster) -> None:
    """KEDA's and Prometheus' own definitions. Two test processes may bring them at once: the same is applied twice."""
    files = [
        file
        for owner, names in FOREIGN.items()
        for name in names
        for file in sorted(definitions(owner).glob(f"*_{name}.yaml"))
    ]
    assert len(files) == 5
    cluster.kubectl("apply", "--server-side", "--force-conflicts", *(f"--filename={file}" for file in files))
    cluster.kubectl("wait", "--for=condition=established", "--timeout=50s", *(f"--filename={file}" for file in files))


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_an_overlay_passes_a_strict_dry_run_without_a_warning(
    overlay: str, cluster: Cluster, make_namespace: MakeNamespace, tmp_path: Path
) -> None:
    namespaces = {name: await make_namespace() for name in (HOME, INSTANCES, INGEST)}
    objects = moved(rendered(overlay, tmp_path), namespaces)
    # What KEDA makes of a ScaledJob: its own definition looks at no pod.
    for scaled in of_kind(objects, "ScaledJob"):
        metadata = {"name": scaled["metadata"]["name"], "namespace": namespaces[HOME]}
        objects.append(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": scaled["spec"]["jobTargetRef"]}
        )
    said = await asyncio.to_thread(cluster.kubectl, "--warnings-as-errors", *STRICT, text=as_text(objects))
    assert len(said.splitlines()) == len(objects)


@pytest.mark.usefixtures("foreign")
async def test_the_dry_run_would_find_a_field_that_is_not_there(
    cluster: Cluster, make_namespace: MakeNamespace, tmp_path: Path
) -> None:
    namespaces = {name: await make_namespace() for name in (HOME, INSTANCES, INGEST)}
    scalers = of_kind(moved(rendered("overlays/production", tmp_path), namespaces), "ScaledObject")
    scalers[0]["spec"]["fallback"]["behaviour"] = "static"
    with pytest.raises(KubectlFailed, match="behaviour"):
        await asyncio.to_thread(cluster.kubectl, *STRICT, text=as_text(scalers))


async def test_the_roles_give_exactly_this(cluster: Cluster, make_namespace: MakeNamespace, tmp_path: Path) -> None:
    namespaces = {name: await make_namespace() for name in (HOME, INSTANCES, INGEST)}
    objects = moved(rendered(EVERYTHING, tmp_path), namespaces)
    applied = of_kind(objects, "ServiceAccount", "Role", "RoleBinding")
    await asyncio.to_thread(cluster.kubectl, "apply", "-f", "-", text=as_text(applied))

    async def may(account: str, where: str) -> set[tuple[str, str, str]]:
        """What a token of this account may do there, as the server says: (group, resource, verb)."""
        home = namespaces[HOME]
        token = (await asyncio.to_thread(cluster.kubectl, "create", "token", account, f"--namespace={home}")).strip()
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespaces[where]},
        }
        said = await asyncio.to_thread(
            cluster.kubectl,
            f"--token={token}",
            "create",
            "--validate=false",
            "-o",
            "json",
            "-f",
            "-",
            text=yaml.safe_dump(review),
        )
        status = json.loads(said)["status"]
        assert status["incomplete"] is False
        return {
            (group, resource, verb)
            for rule in status["resourceRules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            if group not in EVERYBODY
        }

    made = ("create", "get", "list", "watch", "delete")
    assert await may("control-plane", INSTANCES) == {
        *(("", "pods", verb) for verb in made),
        *(("batch", "jobs", verb) for verb in made),
        ("", "pods/log", "get"),
        ("", "pods/resize", "patch"),
        ("", "events", "list"),
        ("", "namespaces", "get"),
        ("", "resourcequotas", "list"),
    }
    assert await may("control-plane", INGEST) == {
        ("batch", "jobs", "list"),
        ("batch", "jobs", "delete"),
        ("", "pods", "list"),
    }
    assert await may("ingest-worker", INGEST) == {
        *(("batch", "jobs", verb) for verb in made),
        ("", "pods", "list"),
        ("", "pods", "watch"),
        ("", "pods/log", "get"),
        ("", "events", "list"),
    }
    nowhere = {"control-plane": (HOME,), "ingest-worker": (HOME, INSTANCES), "export-worker": (HOME, INSTANCES, INGEST)}
    for account, places in nowhere.items():
        for where in places:
            assert await may(account, where) == set(), (account, where)
