"""What a node's programs are told: containerd, its network plugin, and the kubelet."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from lab.realnode.programs import NodePrograms

PAUSE: Final = "node.example.com/pause:1"
"""The image of every pod's first container."""


@dataclass(frozen=True, slots=True)
class Places:
    """The node's folders and sockets. Paths of sockets are short: the kernel allows 107 characters."""

    folder: Path

    @property
    def socket(self) -> Path:
        """Where containerd listens."""
        return self.folder / "containerd.sock"

    @property
    def state(self) -> Path:
        """Containerd's folder of what runs."""
        return self.folder / "state"

    @property
    def kubelet(self) -> Path:
        """The kubelet's root folder."""
        return self.folder / "kubelet"

    @property
    def plugins(self) -> Path:
        """Where a driver puts its socket, in a folder of its name."""
        return self.kubelet / "plugins"

    @property
    def registry(self) -> Path:
        """Where a driver puts the socket by which the kubelet finds it."""
        return self.kubelet / "plugins_registry"

    @property
    def cdi(self) -> Path:
        """Where a driver puts its CDI specifications."""
        return self.folder / "cdi"

    @property
    def pod_logs(self) -> Path:
        """Where the kubelet keeps what containers say: NAMESPACE_POD_UID/CONTAINER/RUN.log."""
        return self.folder / "pods"

    @property
    def kubeconfig(self) -> Path:
        """The kubelet's identity."""
        return self.folder / "kubelet.kubeconfig"

    def make(self) -> None:
        """Make the folders."""
        for one in (self.state, self.kubelet, self.plugins, self.registry, self.cdi, self.folder / "cni"):
            one.mkdir(parents=True, exist_ok=True)


def write_containerd(places: Places, programs: NodePrograms) -> Path:
    """Write containerd's configuration and its network's; return the former's path."""
    network = {"cniVersion": "1.0.0", "name": "node", "plugins": [{"type": "loopback"}]}
    (places.folder / "cni" / "10-node.conflist").write_text(json.dumps(network))
    path = places.folder / "containerd.toml"
    path.write_text(
        f"""\
version = 3
root = '{places.folder / "root"}'
state = '{places.state}'
temp = '{places.folder / "temp"}'
disabled_plugins = ['io.containerd.internal.v1.opt', 'io.containerd.nri.v1.nri']

[grpc]
  address = '{places.socket}'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE}'

[plugins.'io.containerd.cri.v1.runtime']
  # Without the right to lower it runc ends with "can't get final child's PID from pipe".
  restrict_oom_score_adj = true
  cdi_spec_dirs = ['{places.cdi}']

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '{programs.runc}'
  SystemdCgroup = false

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{programs.cni}']
  conf_dir = '{places.folder / "cni"}'
"""
    )
    return path


def write_kubelet(places: Places, *, authority: Path, port: int, health_port: int) -> Path:
    """Write the kubelet's configuration and return its path. Its periods stay the real ones."""
    (places.folder / "resolv.conf").write_text("")
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": health_port,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{places.socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "oomScoreAdj": 0,
        # Only a full disk may evict here, not a busy machine.
        "evictionHard": {
            "memory.available": "1Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "resolvConf": str(places.folder / "resolv.conf"),
        "podLogsDir": str(places.pod_logs),
        "volumePluginDir": str(places.folder / "volume-plugins"),
    }
    path = places.folder / "kubelet.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path
