"""Keeps a Kubernetes control plane running as long as a test process uses it:
`python -m tests.cluster.keeper FOLDER [short-clocks]`.

Users hold a shared lock on `users.lock`. The keeper waits for the exclusive one, which the kernel grants when the last
user has ended, however it ended, and then stops what it started. Should the keeper itself be killed, its children are
ended by the kernel too."""

import ctypes
import fcntl
import json
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.certificates import write_keys
from tests.cluster.programs import control_plane, etcd
from tests.ports import free_ports

START_SECONDS = 180
# No node-lifecycle: a node of the tests is an object that nobody beats for.
CONTROLLERS = (
    *("job-controller", "cronjob-controller", "deployment-controller", "replicaset-controller"),
    *("garbage-collector-controller", "namespace-controller", "pod-garbage-collector-controller"),
    *("serviceaccount-controller", "serviceaccount-token-controller", "root-ca-certificate-publisher-controller"),
    *("resourcequota-controller", "endpointslice-controller", "disruption-controller"),
    *("ttl-after-finished-controller", "clusterrole-aggregation-controller"),
)
# Where nodes are lost for real, within seconds instead of minutes.
SHORT_CLOCKS = "short-clocks"
LOSING = ("node-lifecycle-controller", "taint-eviction-controller")
NODE_LOST_SECONDS = 2

Process = subprocess.Popen[bytes]


class ControlPlane:
    """The four processes in one folder, and what it takes to talk to them."""

    def __init__(self, folder: Path, *, short_clocks: bool = False, controllers: Sequence[str] = CONTROLLERS) -> None:
        self.folder = folder
        self.controllers = list(controllers)
        self.short_clocks = short_clocks
        self.token = secrets.token_hex(16)
        self.running: list[tuple[str, Process]] = []
        self.keys = folder / "keys"
        self.port, self._etcd, self._peers = free_ports(3)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        write_keys(self.keys)
        self._write_private("tokens.csv", f'{self.token},admin,admin-uid,"system:masters"\n')
        self._write_private("kubeconfig", json.dumps(self._kubeconfig()))
        self._start_etcd()
        self._start_server()
        self._wait_for("/readyz", b"ok")
        self._start_controllers()
        self._start_scheduler()
        # Proof that the controllers work.
        self._wait_for("/api/v1/namespaces/default/serviceaccounts/default", b"ServiceAccount")

    def _write_private(self, name: str, text: str) -> None:
        file = self.folder / name
        file.touch(mode=0o600)
        file.write_text(text)

    def _kubeconfig(self) -> dict[str, object]:
        cluster = {"server": self.url, "certificate-authority": str(self.keys / "ca.crt")}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
        }

    def _run(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509  this process has one thread
            )
        self.running.append((name, process))

    def _start_etcd(self) -> None:
        clients, peers = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peers}"
        self._run(
            "etcd",
            [
                str(etcd()), "--name=tests", f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync",
                f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}",
                f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
                f"--initial-cluster=tests={peers}", "--logger=zap", "--log-level=warn",
            ],
        )  # fmt: skip

    def _start_server(self) -> None:
        clocks = ("not-ready", "unreachable") if self.short_clocks else ()
        self._run(
            "kube-apiserver",
            [
                str(control_plane() / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{self._etcd}",
                "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
                f"--secure-port={self.port}", f"--cert-dir={self.keys}",
                f"--tls-cert-file={self.keys / 'server.crt'}", f"--tls-private-key-file={self.keys / 'server.key'}",
                f"--client-ca-file={self.keys / 'ca.crt'}", f"--token-auth-file={self.folder / 'tokens.csv'}",
                "--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={self.keys / 'tokens.pub'}",
                f"--service-account-signing-key-file={self.keys / 'tokens.key'}",
                # Each test namespace names the nodes its pods may be put on: tests side by side share no room.
                "--enable-admission-plugins=PodNodeSelector",
                "--service-cluster-ip-range=10.0.0.0/16", "--allow-privileged=true",
                "--endpoint-reconciler-type=none", "--kubelet-preferred-address-types=InternalIP",
                "--profiling=false", *(f"--default-{clock}-toleration-seconds=2" for clock in clocks),
            ],
        )  # fmt: skip

    def _start_controllers(self) -> None:
        controllers, clocks = list(self.controllers), list[str]()
        if self.short_clocks:
            controllers += LOSING
            clocks = [f"--node-monitor-grace-period={NODE_LOST_SECONDS}s", "--node-monitor-period=500ms"]
            # Several tests may lose a node at once.
            clocks += ["--node-eviction-rate=10", "--secondary-node-eviction-rate=10"]
        self._run(
            "kube-controller-manager",
            [
                str(control_plane() / "kube-controller-manager"), f"--kubeconfig={self.folder / 'kubeconfig'}",
                "--leader-elect=false", "--secure-port=0", f"--controllers={','.join(controllers)}",
                f"--root-ca-file={self.keys / 'ca.crt'}",
                f"--service-account-private-key-file={self.keys / 'tokens.key'}",
                "--kube-api-qps=300", "--kube-api-burst=600", "--resource-quota-sync-period=10s", *clocks,
            ],
        )  # fmt: skip

    def _start_scheduler(self) -> None:
        self._run(
            "kube-scheduler",
            [
                str(control_plane() / "kube-scheduler"), f"--kubeconfig={self.folder / 'kubeconfig'}",
                "--leader-elect=false", "--secure-port=0", "--kube-api-qps=300", "--kube-api-burst=600",
            ],
        )  # fmt: skip

    def _wait_for(self, path: str, wanted: bytes) -> None:
        context = ssl.create_default_context(cafile=str(self.keys / "ca.crt"))
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            for name, process in self.running:
                if process.poll() is not None:
                    raise SystemExit(f"{name} of the tests ended at its start:\n{self._end_of_log(name)}")
            try:
                with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                    if wanted in answer.read():
                        return
            except OSError:
                pass
            time.sleep(0.1)
        logs = "\n".join(self._end_of_log(name) for name, _ in self.running)
        raise SystemExit(f"The tests' Kubernetes does not answer {path} as it should:\n{logs}")

    def _end_of_log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        # All but etcd keep nothing, and nobody needs what etcd keeps.
        for _, process in self.running:
            process.kill()
        for _, process in self.running:
            process.wait()


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main(folder: Path, short_clocks: bool) -> None:
    # Those who end the tests by Ctrl-C end the users, not us: we go when they are gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plane = ControlPlane(folder, short_clocks=short_clocks)
    try:
        plane.start()
        facts = {
            "url": plane.url,
            "token": plane.token,
            "processes": {name: process.pid for name, process in plane.running},
        }
        (folder / "ready.tmp").write_text(json.dumps(facts))
        (folder / "ready.tmp").rename(folder / "ready.json")
        with (folder / "users.lock").open("w") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        plane.stop()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), SHORT_CLOCKS in sys.argv[2:])
