"""What becomes of each category of failure on Kubernetes, who can mend it, and what people read of it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from paddock.jobs.model import Budget
from paddock.runtimes.diagnosis import Clock, MendedBy, Verdict


class Rule(NamedTuple):
    verdict: Verdict
    # Who can mend it once it is permanent; until then Paddock tries again by itself.
    mended_by: MendedBy
    message: str
    hint: str
    budget: Budget = "cluster"
    clock: Clock | None = None
    # How often it may come before it is permanent; None: as often as the budget allows.
    times: int | None = None


_AGAIN = "Paddock tries again by itself."
RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "quota_exceeded": Rule(
            "transient",
            "operator",
            "The quota of the namespace leaves no room for {object}.",
            f"{_AGAIN} Delete what is not needed, or raise the ResourceQuota that the cluster names.",
        ),
        "throttled": Rule(
            "transient",
            "operator",
            "Kubernetes asks Paddock for fewer requests.",
            "Paddock makes nothing new for a while and goes on by itself.",
        ),
        "api_unavailable": Rule(
            "transient",
            "operator",
            "The API server of Kubernetes did not answer as it should.",
            f"{_AGAIN} If it lasts, look after the API server; `paddock doctor` says whether it answers.",
        ),
        "webhook_unavailable": Rule(
            "transient",
            "operator",
            "An admission webhook of the cluster does not answer, so {object} could not be made.",
            f"{_AGAIN} If it lasts, mend the webhook that the cluster names.",
        ),
        "unauthorized": Rule(
            "transient",
            "operator",
            "Kubernetes does not accept Paddock's token.",
            "Check the control plane's service account, or the kubeconfig's user; `paddock doctor` says how old the token is.",
            times=2,
        ),
        "forbidden": Rule(
            "permanent",
            "operator",
            "Kubernetes does not allow Paddock what it tried with {object}.",
            "Apply the Roles and RoleBindings of `deploy/` again; `paddock doctor` lists the permissions that are missing.",
        ),
        "pod_security": Rule(
            "permanent",
            "operator",
            "The Pod Security of the namespace refuses {object}.",
            "Paddock's pods keep to `restricted`: look for a webhook that changes pods, or for an older Paddock.",
        ),
        "admission_denied": Rule(
            "permanent",
            "operator",
            "A rule of the cluster refuses {object}.",
            "Change the rule that the cluster names, or give pods what it asks for in `[runtime.kubernetes]`.",
        ),
        "quota_needs_requests": Rule(
            "permanent",
            "operator",
            "The quota of the namespace wants a request or a limit that {object} does not name.",
            "Take it out of the ResourceQuota, or add a LimitRange that gives a default.",
        ),
        "namespace_terminating": Rule(
            "permanent",
            "operator",
            "The namespace of {object} is being deleted.",
            "Once it is gone make it again (`deploy/`), then `paddock cluster adopt --reason ...`.",
        ),
        "namespace_missing": Rule(
            "permanent",
            "operator",
            "The namespace of {object} is not there.",
            "Make it (`deploy/`), or correct the setting that names it.",
        ),
        "invalid_spec": Rule(
            "permanent",
            "operator",
            "Kubernetes does not understand the definition of {object}{fields}.",
            "Correct that field in `[runtime.kubernetes]`; where it is not set there, this is a defect of Paddock.",
        ),
        "no_room": Rule(
            "transient",
            "operator",
            "No node has room for {object} now.",
            f"{_AGAIN} Delete what is not needed, or add nodes.",
            clock="schedule",
        ),
        "too_large": Rule(
            "permanent",
            "operator",
            "{object} is larger than any node of the cluster.",
            "Add a node pool with larger nodes, or ask for less memory and fewer CPUs.",
            clock="schedule",
        ),
        "no_matching_node": Rule(
            "permanent",
            "operator",
            "No node of the cluster may take {object}.",
            "Compare `node_selector`, `affinity` and `tolerations` in `[runtime.kubernetes]` with the nodes' labels and taints.",
            clock="schedule",
        ),
        "image_pull_slow": Rule(
            "transient",
            "operator",
            "The image of {object} could not be fetched in time.",
            f"{_AGAIN} If it lasts, look after the registry, or keep a mirror nearer to the cluster.",
            clock="start",
        ),
        "image_unavailable": Rule(
            "permanent",
            "operator",
            "The image of {object} cannot be fetched.",
            "Check that the image's name and tag are there (`PADDOCK_KUBERNETES_IMAGE` for instances), and `image_pull_secrets`.",
        ),
        "config_missing": Rule(
            "permanent",
            "operator",
            "Something that {object} needs is not in the cluster.",
            "Make the Secret, ConfigMap, service account or class that the cluster names.",
            clock="settle",
        ),
        "container_refused": Rule(
            "permanent",
            "operator",
            "The container {container} of {object} could not be started.",
            "Check that its image has the program that is called, for this kind of node.",
            clock="settle",
        ),
        "volume_or_network": Rule(
            "transient",
            "operator",
            "The node did not give {object} its volumes or its network.",
            f"{_AGAIN} If it lasts on one node, look after its storage and network plugins.",
            clock="start",
        ),
        "evicted": Rule(
            "transient",
            "operator",
            "Kubernetes evicted {object} from its node.",
            f"{_AGAIN} Where it happens often, look for nodes short of memory or disk.",
        ),
        "preempted": Rule(
            "transient",
            "operator",
            "{object} had to make room for a pod of higher priority.",
            f"{_AGAIN} Where it happens often, add nodes, or set `priority_class` in `[runtime.kubernetes]`.",
        ),
        "node_lost": Rule(
            "transient",
            "operator",
            "The node on which {object} ran was lost.",
            _AGAIN,
        ),
        "node_shutdown": Rule(
            "transient",
            "operator",
            "The node on which {object} ran was shut down.",
            _AGAIN,
        ),
        "kubelet_rejected": Rule(
            "transient",
            "operator",
            "The node that was to run {object} did not take it.",
            _AGAIN,
        ),
        "own_storage_exceeded": Rule(
            "permanent",
            "you",
            "{object} wrote more to its disk than it may.",
            "Let it write less: a smaller graph, or smaller batches.",
        ),
        "out_of_memory": Rule(
            "larger",
            "you",
            "{object} needed more memory than it had.",
            "It is tried again with twice the memory, up to a bound. Beyond that ask for more, or give it less to do.",
        ),
        "killed": Rule(
            "transient",
            "you",
            "The process of {object} was killed (exit code {exit_code}), and nobody asked for that.",
            "It is tried once more. If that ends the same way, read its log: often one of its own processes took too much memory.",
            budget="work",
            times=1,
        ),
        "deadline_exceeded": Rule(
            "permanent",
            "you",
            "{object} took longer than it may.",
            "Raise its time-out, or give it less to do.",
        ),
        "exit_code": Rule(
            "permanent",
            "you",
            "The program of {object} ended with exit code {exit_code}{meaning}.",
            "Read its log.",
        ),
        "vanished": Rule(
            "transient",
            "operator",
            "{object} is gone, and Paddock did not delete it.",
            f"{_AGAIN} If it comes again, find out who deletes it: the audit log of the cluster tells.",
        ),
        "unknown": Rule(
            "transient",
            "operator",
            "{object} failed in a way that Paddock does not know.",
            "Read what the cluster says, and `kubectl describe` it.",
            budget="work",
            times=3,
        ),
    }
)
CATEGORIES: Final = tuple(RULES)
