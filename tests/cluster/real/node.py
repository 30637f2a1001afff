"""One real node: Debian's containerd and runc and a kubelet, in the network namespace that this process is in. It refuses
to work in the machine's own, where its pods would meet the machine's addresses."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from tests.cluster.keeper import die_with_parent
from tests.cluster.programs import kubelet
from tests.cluster.real.image import write_busybox

BRIDGE, GATEWAY, PODS = "paddock0", "198.18.0.1", "198.18.0.0/24"
NAME = "node-1"
PAUSE = "paddock.test/pause:1"
# Of this run alone: another may be ending still.
CGROUP = f"paddock-cluster-{os.getpid()}"
CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
START_SECONDS = 120


class Node:
    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self.folder = folder
        self._kubeconfig = kubeconfig
        self._socket = folder / "containerd.sock"
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, is_ready: Callable[[], bool]) -> None:
        self._make_network()
        self._write_configuration()
        self._run("containerd", ["containerd", "--config", str(self.folder / "containerd.toml")])
        _wait(lambda: self._ctr("version", check=False) != "", "containerd does not answer")
        archive = self.folder / "pause.tar"
        write_busybox(PAUSE, archive, ("/bin/sleep", "1000000000"), self.folder)
        self.load(archive)
        self._make_cgroups()
        self._run(
            "kubelet",
            [
                str(kubelet()), f"--config={self.folder / 'kubelet.yaml'}", f"--kubeconfig={self._kubeconfig}",
                f"--root-dir={self.folder / 'kubelet'}", f"--hostname-override={NAME}", f"--node-ip={GATEWAY}",
            ],
        )  # fmt: skip
        _wait(is_ready, f"The node is not ready; see {self.folder / 'kubelet.log'}")

    def load(self, archive: Path, also: Sequence[str] = ()) -> None:
        """The image of this archive, by its name and by these."""
        named = self._ctr("images", "import", str(archive)).split()
        name = next(word for word in named if "/" in word)
        for other in also:
            self._ctr("images", "tag", "--force", name, other)

    def _make_network(self) -> None:
        # The first line is the heading. A namespace made for us has no way anywhere yet.
        if len(Path("/proc/self/net/route").read_text().splitlines()) > 1:
            raise SystemExit("This is the machine's own network namespace: start it by scripts/cluster.")
        for command in (
            f"link add {BRIDGE} type bridge",
            f"addr add {GATEWAY}/24 dev {BRIDGE}",
            f"link set {BRIDGE} up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _write_configuration(self) -> None:
        for name in ("root", "state", "cni", "kubelet"):
            (self.folder / name).mkdir(parents=True)
        ipam = {
            "type": "host-local",
            "dataDir": str(self.folder / "ipam"),
            "ranges": [[{"subnet": PODS, "gateway": GATEWAY}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "ipMasq": False, "ipam": ipam}
        network = {"cniVersion": "0.4.0", "name": "paddock", "plugins": [bridge]}
        (self.folder / "cni" / "10-paddock.conflist").write_text(json.dumps(network))
        (self.folder / "containerd.toml").write_text(
            CONTAINERD.format(folder=self.folder, socket=self._socket, pause=PAUSE)
        )
        (self.folder / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet_configuration()))

    def _kubelet_configuration(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            # A machine with cgroup v1 is refused by default.
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{CGROUP}",
            "enforceNodeAllocatable": [],
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "address": GATEWAY,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "volumePluginDir": str(self.folder / "plugins"),
            "podLogsDir": str(self.folder / "logs"),
            "oomScoreAdj": 0,
            "makeIPTablesUtilChains": False,
            "syncFrequency": "5s",
        }

    def _make_cgroups(self) -> None:
        if (CGROUPS / "cgroup.controllers").exists():
            (CGROUPS / CGROUP).mkdir(exist_ok=True)
            return
        for controller in CONTROLLERS:
            (CGROUPS / controller / CGROUP).mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            (CGROUPS / "cpuset" / CGROUP / file).write_text((CGROUPS / "cpuset" / file).read_text())

    def _run(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)  # noqa: PLW1509  nothing else runs yet
            )

    def _ctr(self, *arguments: str, check: bool = True) -> str:
        command = ["ctr", "--address", str(self._socket), "--namespace", "k8s.io", *arguments]
        ran = subprocess.run(command, check=False, capture_output=True, text=True)
        if check and ran.returncode != 0:
            raise RuntimeError(f"ctr {' '.join(arguments[:2])} failed: {ran.stderr}")
        return ran.stdout

    def stop(self) -> None:
        """Containers first: they would outlive containerd."""
        for process in reversed(self._running[1:]):
            _end(process)
        for container in self._ctr("containers", "list", "--quiet", check=False).split():
            self._ctr("tasks", "kill", "--signal", "SIGKILL", "--all", container, check=False)
            self._ctr("tasks", "delete", "--force", container, check=False)
            self._ctr("containers", "delete", container, check=False)
        for process in self._running[:1]:
            _end(process)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((mount for mount in mounts if mount.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=False)
        for folder in (CGROUPS / CGROUP, *(CGROUPS / one / CGROUP for one in (*CONTROLLERS, "unified"))):
            for below, _, _ in os.walk(folder, topdown=False):
                os.rmdir(below)
        shutil.rmtree(self.folder, ignore_errors=True)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(holds: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + START_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(otherwise)
        time.sleep(0.2)


CONTAINERD = """version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE nobody may lower a score.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""
