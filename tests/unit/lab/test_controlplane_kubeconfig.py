"""Kubeconfigs and certificates: who may be reached, and what is written is what is read."""

import ssl
from pathlib import Path

import pytest
import yaml

from lab.certs import Authority
from lab.kubeconfig import Connection, ForeignClusterError, KubeconfigError, is_loopback


def write(path: Path, server: str, **user: object) -> Path:
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "there",
                "contexts": [{"name": "there", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return path


@pytest.mark.parametrize(
    "server", ["https://127.0.0.1:6443", "https://127.1.2.3", "https://[::1]:1", "https://localhost:1"]
)
def test_the_current_context_may_lead_to_this_machine(tmp_path: Path, server: str) -> None:
    assert is_loopback(server)
    assert Connection.from_kubeconfig(write(tmp_path / "k", server, token="t")).server == server


@pytest.mark.parametrize(
    "server",
    [
        "https://10.0.0.1:6443",
        "https://example.org",
        "https://127.0.0.1.example.org",
        "https://localhost.example.org",
        "",
    ],
)
def test_a_foreign_cluster_is_refused_unless_its_context_is_named(tmp_path: Path, server: str) -> None:
    path = write(tmp_path / "k", server, token="t")
    with pytest.raises(ForeignClusterError, match="name the context"):
        Connection.from_kubeconfig(path)
    assert Connection.from_kubeconfig(path, context="there").server == server


def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="no context 'elsewhere'"):
        Connection.from_kubeconfig(write(tmp_path / "k", "https://127.0.0.1"), context="elsewhere")


def test_a_login_plugin_is_never_run(tmp_path: Path) -> None:
    path = write(
        tmp_path / "k", "https://127.0.0.1", exec={"command": "touch", "args": [str(tmp_path / "ran")]}
    )
    with pytest.raises(KubeconfigError, match="plugin"):
        Connection.from_kubeconfig(path)


def test_what_is_written_is_read_back_and_private(tmp_path: Path) -> None:
    authority = Authority.create()
    pair = authority.client("someone", ["a-group"])
    written = Connection(
        "https://127.0.0.1:1", ca=authority.pair.certificate, certificate=pair.certificate, key=pair.key
    )
    written.write_kubeconfig(tmp_path / "k", context="lab", user="someone")

    assert Connection.from_kubeconfig(tmp_path / "k") == written
    assert (tmp_path / "k").stat().st_mode & 0o077 == 0


def test_paths_in_a_kubeconfig_start_at_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("secret\n")
    path = write(tmp_path / "k", "https://127.0.0.1", tokenFile="token")
    monkeypatch.chdir("/")
    assert Connection.from_kubeconfig(path).token == "secret"


def test_the_certificates_pass_the_strictest_check(tmp_path: Path) -> None:
    import socket
    import threading

    authority = Authority.create()
    certificate, key = authority.server("server", ["127.0.0.1", "kubernetes.default"]).write(
        tmp_path, "server"
    )
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    serving.load_verify_locations(cadata=authority.pair.certificate)
    serving.verify_mode = ssl.CERT_REQUIRED
    pair = authority.client("someone", ["a-group"])
    connection = Connection(
        "https://127.0.0.1", ca=authority.pair.certificate, certificate=pair.certificate, key=pair.key
    )
    calling = connection.ssl_context()
    assert isinstance(calling, ssl.SSLContext)
    calling.verify_flags |= ssl.VERIFY_X509_STRICT

    ours, theirs = socket.socketpair()
    subjects: list[object] = []

    def serve() -> None:
        with serving.wrap_socket(theirs, server_side=True) as peer:
            subjects.append((peer.getpeercert() or {})["subject"])
            peer.send(b"x")

    server = threading.Thread(target=serve)
    server.start()
    with calling.wrap_socket(ours, server_hostname="127.0.0.1") as wrapped:
        assert wrapped.recv(1) == b"x"
    server.join()

    assert subjects == [((("organizationName", "a-group"),), (("commonName", "someone"),))]
