"""A Kubernetes control plane on this machine: etcd, API server, controller manager, scheduler; nothing outlives us.

Everything listens on 127.0.0.1, on ports chosen free, so that several can run side by side. Methods block: from a
coroutine call them by `asyncio.to_thread`.
"""

import atexit
import http.client
import itertools
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import yaml

from lab.certs import Authority, KeyPair, signing_key, write_private
from lab.kubeconfig import Connection
from lab.ports import free_ports
from lab.processes import Component
from lab.runs import RunFolder
from lab.toolchain import ControlPlaneBinaries, Report, ensure_control_plane, find_kubectl, report_to_stderr

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"

_HOST: Final = "127.0.0.1"
_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
# Far beyond the usual seconds, for machines that do much else.
_READY_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.05
_PORT_ATTEMPTS: Final = 5
_PORT_TAKEN: Final = "address already in use"
_numbers: Final = itertools.count(1)


class ControlPlaneError(Exception):
    """A program of the control plane did not start, or ended by itself; the message shows its last words."""


class _PortTakenError(ControlPlaneError):
    """Another process took a port between our choice and its use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What may differ between control planes. Extra arguments come last, so they win over ours."""

    runtime_config: tuple[str, ...] = ()
    """APIs to serve besides the defaults, e.g. "resource.k8s.io/v1beta1=true"."""
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    apiserver_args: tuple[str, ...] = ()
    controller_manager_args: tuple[str, ...] = ()
    """E.g. "--node-monitor-grace-period=8s" for tests of lost nodes."""
    scheduler_args: tuple[str, ...] = ()
    scheduler_config: Mapping[str, Any] = field(default_factory=dict)
    """Fields of KubeSchedulerConfiguration."""
    audit: bool = False
    """Whether each finished request is written to `ControlPlane.audit_log` (JSON lines, metadata only)."""
    keep: bool = False
    """Whether the folder with logs and data stays after the end."""


@dataclass(frozen=True, slots=True)
class _Ports:
    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int


class ControlPlane:
    """One control plane. Use as a context manager, or call `start` and `stop`."""

    def __init__(
        self,
        name: str | None = None,
        settings: Settings | None = None,
        *,
        binaries: ControlPlaneBinaries | None = None,
        report: Report = report_to_stderr,
    ) -> None:
        self.name = name or f"run-{os.getpid()}-{next(_numbers)}"
        self.settings = settings or Settings()
        self._binaries = binaries
        self._report = report
        self._folder: RunFolder | None = None
        self._components: dict[str, Component] = {}
        self._killed: set[str] = set()
        self._authority: Authority | None = None
        self._tls: ssl.SSLContext | None = None
        self._ports: _Ports | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # Life

    def start(self) -> None:
        """Start everything and return when pods could be created and scheduled; seconds, once the programs are built.

        Raises ControlPlaneError with the last log lines of the program that failed; nothing is left running then.
        """
        if self._folder is not None:
            raise RuntimeError(f"control plane {self.name!r} is started already")
        binaries = self._binaries or ensure_control_plane(self._report)
        self._folder = RunFolder.claim(self.name)
        atexit.register(self.stop)
        try:
            self._prepare()
            for attempt in itertools.count(1):
                try:
                    self._start_on_new_ports(binaries)
                    break
                except _PortTakenError:
                    self._kill_all()
                    if attempt == _PORT_ATTEMPTS:
                        raise
            self._folder.publish(
                {
                    "name": self.name,
                    "server": self.server,
                    "kubeconfig": str(self.kubeconfig),
                    "kubectl": str(find_kubectl()),
                    "version": binaries.kubernetes_version,
                    "logs": str(self.folder),
                    "pids": {name: component.pid for name, component in self._components.items()},
                }
            )
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything and remove the folder (unless it is to be kept). Nothing to do if it is not started."""
        if self._folder is None:
            return
        self._kill_all()
        self._folder.release(keep=self.settings.keep)
        self._folder = None
        self._components = {}
        atexit.unregister(self.stop)

    def check(self) -> None:
        """Raise ControlPlaneError if a program has ended that nobody ended."""
        for component in self._components.values():
            if not component.is_running and component.name not in self._killed:
                raise self._failure(component, f"ended by itself (exit code {component.exit_code})")

    # Faults

    def kill_component(self, name: str) -> None:
        """End a program at once, as a crash would."""
        self._killed.add(name)
        self.component(name).kill()

    def restart_component(self, name: str) -> None:
        """Start a program again on its port, killing it first if it runs, and await that it is ready."""
        component = self.component(name)
        component.kill()
        component.start()
        self._await_ready(component)
        self._killed.discard(name)
        if name == ETCD:
            self._await_ready(self.component(API_SERVER))  # it has to find etcd again

    def pause_component(self, name: str) -> None:
        """Stop a program in its tracks, e.g. the scheduler, to see what others do meanwhile."""
        self.component(name).pause()

    def resume_component(self, name: str) -> None:
        """Let a paused program go on."""
        self.component(name).resume()

    def component(self, name: str) -> Component:
        """The program of that name: ETCD, API_SERVER, CONTROLLER_MANAGER or SCHEDULER."""
        try:
            return self._components[name]
        except KeyError:
            raise KeyError(
                f"{name!r} is none of {', '.join(self._components) or 'a started control plane'}"
            ) from None

    # Facts

    @property
    def folder(self) -> Path:
        """The folder with kubeconfigs, certificates, logs and data of this run."""
        if self._folder is None:
            raise RuntimeError(f"control plane {self.name!r} is not started")
        return self._folder.path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig (system:masters). What is tested gets an identity of its own."""
        return self.folder / "admin.kubeconfig"

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{_HOST}:{self.ports.apiserver}"

    @property
    def admin(self) -> Connection:
        """The administrator's connection."""
        return Connection.from_kubeconfig(self.kubeconfig)

    @property
    def authority(self) -> Authority:
        """The authority whose client certificates the API server believes."""
        if self._authority is None:
            raise RuntimeError(f"control plane {self.name!r} is not started")
        return self._authority

    @property
    def ports(self) -> _Ports:
        """The ports of this run."""
        if self._ports is None:
            raise RuntimeError(f"control plane {self.name!r} is not started")
        return self._ports

    @property
    def audit_log(self) -> Path:
        """Where the API server writes each request, if the settings ask for it."""
        return self.folder / "audit.jsonl"

    def log(self, name: str) -> Path:
        """The log file of a program."""
        return self.folder / f"{name}.log"

    # How it is done

    def _prepare(self) -> None:
        """Everything that does not depend on ports."""
        self._killed.clear()
        self._authority = Authority.create(self.name)
        self._authority.write(self.folder)
        # Nobody speaks through a proxy here, but the programs ask for its authority every few seconds if there is none.
        (self.folder / "front-proxy-ca.crt").write_text(Authority.create("front-proxy").pair.certificate)
        names = [
            _HOST,
            "localhost",
            "10.96.0.1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ]
        self._authority.server("kube-apiserver", names).write(self.folder, "serving")
        private, public = signing_key()
        write_private(self.folder / "service-account.key", private)
        (self.folder / "service-account.pub").write_text(public)
        if self.settings.audit:
            policy = {
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived", "ResponseStarted"],
                "rules": [{"level": "Metadata"}],
            }
            (self.folder / "audit-policy.yaml").write_text(yaml.safe_dump(policy))

    def _start_on_new_ports(self, binaries: ControlPlaneBinaries) -> None:
        self._ports = _Ports(*free_ports(5))
        self._write_kubeconfig("admin", self.authority.client("lab-admin", ["system:masters"]))
        self._write_kubeconfig("controller-manager", self.authority.client("system:kube-controller-manager"))
        self._write_kubeconfig("scheduler", self.authority.client("system:kube-scheduler"))
        self._write_scheduler_config()
        tls = self.admin.ssl_context()
        assert isinstance(tls, ssl.SSLContext)
        self._tls = tls
        commands = {
            ETCD: (binaries.etcd, self._etcd_flags()),
            API_SERVER: (binaries.apiserver, self._apiserver_flags()),
            CONTROLLER_MANAGER: (binaries.controller_manager, self._controller_manager_flags()),
            SCHEDULER: (binaries.scheduler, self._scheduler_flags()),
        }
        self._components = {
            name: Component(name, [str(program), *flags], self.log(name))
            for name, (program, flags) in commands.items()
        }
        for component in self._components.values():
            # An old attempt's "address already in use" must not be read as this one's.
            component.log.unlink(missing_ok=True)
        # The API server waits for etcd by itself; the other two would give up without it.
        self.component(ETCD).start()
        self.component(API_SERVER).start()
        self._await_ready(self.component(ETCD))
        self._await_ready(self.component(API_SERVER))
        self.component(CONTROLLER_MANAGER).start()
        self.component(SCHEDULER).start()
        self._await_ready(self.component(CONTROLLER_MANAGER))
        self._await_ready(self.component(SCHEDULER))
        self._await(
            self.component(CONTROLLER_MANAGER),
            lambda: self._answers(self.ports.apiserver, "/api/v1/namespaces/default/serviceaccounts/default"),
            "had made the service account of `default`",
        )

    def _kill_all(self) -> None:
        # Nothing in here is worth an orderly end, which the API server would draw out over its open watches.
        for component in reversed(self._components.values()):
            component.kill()

    def _write_kubeconfig(self, name: str, pair: KeyPair) -> None:
        connection = Connection(
            self.server, ca=self.authority.pair.certificate, certificate=pair.certificate, key=pair.key
        )
        connection.write_kubeconfig(self.folder / f"{name}.kubeconfig", context=f"lab-{self.name}", user=name)

    def _write_scheduler_config(self) -> None:
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "enableProfiling": False,
            "clientConnection": {
                "kubeconfig": str(self.folder / "scheduler.kubeconfig"),
                "qps": 500,
                "burst": 1000,
            },
            **self.settings.scheduler_config,
        }
        (self.folder / "scheduler.yaml").write_text(yaml.safe_dump(config))

    def _etcd_flags(self) -> list[str]:
        client, peer = f"http://{_HOST}:{self.ports.etcd}", f"http://{_HOST}:{self.ports.etcd_peer}"
        return [
            "--name=lab",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=lab={peer}",
            "--unsafe-no-fsync",  # the data is worth nothing after the run
            "--log-level=warn",
        ]

    def _apiserver_flags(self) -> list[str]:
        flags = [
            f"--etcd-servers=http://{_HOST}:{self.ports.etcd}",
            f"--bind-address={_HOST}",
            f"--advertise-address={_HOST}",
            f"--secure-port={self.ports.apiserver}",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=Node,RBAC",
            f"--client-ca-file={self.folder / 'ca.crt'}",
            f"--requestheader-client-ca-file={self.folder / 'front-proxy-ca.crt'}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--tls-cert-file={self.folder / 'serving.crt'}",
            f"--tls-private-key-file={self.folder / 'serving.key'}",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-key-file={self.folder / 'service-account.pub'}",
            f"--service-account-signing-key-file={self.folder / 'service-account.key'}",
            "--profiling=false",
        ]
        if self.settings.runtime_config:
            flags.append(f"--runtime-config={','.join(self.settings.runtime_config)}")
        if self.settings.audit:
            flags += [
                f"--audit-policy-file={self.folder / 'audit-policy.yaml'}",
                f"--audit-log-path={self.audit_log}",
            ]
        return [*flags, *self._feature_flags(), *self.settings.apiserver_args]

    def _controller_manager_flags(self) -> list[str]:
        kubeconfig = self.folder / "controller-manager.kubeconfig"
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            *self._serving_flags(self.ports.controller_manager),
            "--leader-elect=false",
            # Each controller under its own service account, as in a real cluster: the audit log tells them apart.
            "--use-service-account-credentials=true",
            f"--root-ca-file={self.folder / 'ca.crt'}",
            f"--service-account-private-key-file={self.folder / 'service-account.key'}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--profiling=false",
            *self._feature_flags(),
            *self.settings.controller_manager_args,
        ]

    def _scheduler_flags(self) -> list[str]:
        kubeconfig = self.folder / "scheduler.kubeconfig"
        return [
            f"--config={self.folder / 'scheduler.yaml'}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            *self._serving_flags(self.ports.scheduler),
            *self._feature_flags(),
            *self.settings.scheduler_args,
        ]

    def _serving_flags(self, port: int) -> list[str]:
        return [
            f"--bind-address={_HOST}",
            f"--secure-port={port}",
            f"--tls-cert-file={self.folder / 'serving.crt'}",
            f"--tls-private-key-file={self.folder / 'serving.key'}",
        ]

    def _feature_flags(self) -> list[str]:
        gates = ",".join(f"{name}={str(on).lower()}" for name, on in self.settings.feature_gates.items())
        return [f"--feature-gates={gates}"] if gates else []

    def _await_ready(self, component: Component) -> None:
        ports = self.ports
        port, path, sign = {
            ETCD: (ports.etcd, "/readyz", ""),
            API_SERVER: (ports.apiserver, "/readyz", ""),
            # It says OK before it has any controller, and gives up if the API server goes away until then.
            CONTROLLER_MANAGER: (ports.controller_manager, "/healthz?verbose", "-controller ok"),
            SCHEDULER: (ports.scheduler, "/readyz", ""),
        }[component.name]
        tls = component.name != ETCD
        self._await(
            component, lambda: self._answers(port, path, sign=sign, tls=tls), f"reported ready on {path}"
        )

    def _await(self, component: Component, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not reached():
            for each in self._components.values():
                if each.exit_code is not None and (each is component or each.name not in self._killed):
                    raise self._failure(
                        each, f"ended (exit code {each.exit_code}) before {component.name} {what}"
                    )
            if time.monotonic() > deadline:
                raise self._failure(component, f"has not {what} within {_READY_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)

    def _answers(self, port: int, path: str, *, sign: str = "", tls: bool = True) -> bool:
        try:
            connection = (
                http.client.HTTPSConnection(_HOST, port, timeout=5, context=self._tls)
                if tls
                else http.client.HTTPConnection(_HOST, port, timeout=5)
            )
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                return response.status == 200 and sign.encode() in response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return False

    def _failure(self, component: Component, what: str) -> ControlPlaneError:
        tail = component.log_tail()
        kind = _PortTakenError if _PORT_TAKEN in component.log_tail(200) else ControlPlaneError
        advice = (
            "Every try met a port in use: is something else taking ports on 127.0.0.1?"
            if kind is _PortTakenError
            else "Set keep (`up --keep`) to read the whole logs afterwards."
        )
        return kind(f"{component.name} {what}. Last lines of {component.log}:\n{tail}\n{advice}")
