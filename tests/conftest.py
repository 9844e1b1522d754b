"""Fixtures for every test that wants a real Kubernetes: one control plane a session, one namespace a test."""

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest
from hypothesis import settings

from lab.client import Api
from lab.controlplane import ControlPlane, Settings
from lab.install import HOLD, RESERVATION, UNDO, Account, install
from lab.kubeconfig import Connection
from lab.namespaces import make_namespace, remove_namespace
from lab.operator_process import OperatorProcess
from lab.toolchain import ensure_control_plane

_CONTEXT_OPTION = "--kube-context"

# How long an example takes says something about the machine, and nothing about what is tested.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        _CONTEXT_OPTION,
        metavar="NAME",
        help="run on the cluster of this context in $KUBECONFIG instead of a control plane of our own. "
        "Only a context named here is ever written to.",
    )


def pytest_configure() -> None:
    # By default SIGTERM would end Python on the spot, without the fixtures' clean-up.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)
    # A shell starts its background jobs with SIGINT ignored, and whatever they start inherits that: a test that
    # interrupts a program of ours would wait for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Before several processes test side by side: each makes a control plane of its own, from one build."""
    if config.getoption(_CONTEXT_OPTION):
        raise pytest.UsageError(f"{_CONTEXT_OPTION} names one cluster: run with WORKERS=0 (-n 0)")
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    ensure_control_plane(reporter.write_line if reporter else None)  # they could not tell how it goes


def pytest_collection_finish(session: pytest.Session) -> None:
    # A first build takes longer than any test may: it must be done before the tests' clocks start.
    config = session.config
    if config.option.collectonly or config.getoption(_CONTEXT_OPTION):
        return
    wanted = {"control_plane", "cluster"}
    if any(wanted & set(getattr(item, "fixturenames", ())) for item in session.items):
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        ensure_control_plane(reporter.write_line if reporter else None)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """The control plane that all tests of the session share. A test that breaks it mends it, or makes its own."""
    # Older versions of the device API beside v1, which Kubernetes' own controllers need.
    betas = tuple(f"resource.k8s.io/{version}=true" for version in ("v1beta1", "v1beta2"))
    with ControlPlane(f"pytest-{os.getpid()}", Settings(runtime_config=betas)) as started:
        yield started


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Connection:
    """The administrator's connection: to our control plane, or to the context named on the command line."""
    context = request.config.getoption(_CONTEXT_OPTION)
    if context is None:
        shared: ControlPlane = request.getfixturevalue("control_plane")
        return shared.admin
    kubeconfig = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    return Connection.from_kubeconfig(kubeconfig, context=context)


@pytest.fixture
async def admin(cluster: Connection) -> AsyncIterator[Api]:
    """A client as administrator, for what surrounds a test. What is tested runs under its own identity."""
    async with Api(cluster) as api:
        yield api


@pytest.fixture
async def namespace(admin: Api) -> AsyncIterator[str]:
    """A namespace for this test alone, in which pods can be made; gone when the test is over."""
    name = f"test-{secrets.token_hex(4)}"
    await make_namespace(admin, name)
    yield name
    await remove_namespace(admin, name)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


@pytest.fixture(scope="session")
def account(cluster: Connection) -> Account:
    """The operator's ServiceAccount, with what a user installs around it."""

    async def put() -> Account:
        async with Api(cluster) as admin:
            return await install(admin, HOLD, RESERVATION, UNDO)

    return asyncio.run(put())


@pytest.fixture
async def operator(
    account: Account, admin: Api, namespace: str, tmp_path: Path
) -> AsyncIterator[OperatorProcess]:
    """An operator process that handles this test's namespace only."""
    arguments = (f"--namespaces={namespace}", "--log-format=text")
    process = await OperatorProcess.under(account, admin, tmp_path, arguments=arguments)
    async with process:
        yield process
