"""The two gRPC services between a kubelet and a DRA driver, as plain Python: the one module that handles protobuf.

The messages are made when they are needed, out of the kubelet's own protos: those in the module `k8s.io/kubelet` of the
version that the test bed builds. Nothing generated is committed.
"""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from lab.toolchain import TOOLS, ToolchainError, cache_folder, module_folder, module_version

SERVICE: Final = "v1.DRAPlugin"
"""The version of the DRA service, as a driver names it when it registers (k8s.io/kubelet/pkg/apis/dra/v1)."""
PLUGIN_TYPE: Final = "DRAPlugin"
LONGEST_SOCKET: Final = 107  # bytes of a Unix socket's path, by the kernel

_MODULE: Final = "k8s.io/kubelet"
_REGISTRATION: Final = "pkg/apis/pluginregistration/v1/api.proto"
_DRA: Final = "pkg/apis/dra/v1/api.proto"
_REGISTRATION_PACKAGE: Final = "pluginregistration"
_DRA_PACKAGE: Final = "k8s.io.kubelet.pkg.apis.dra.v1"

_Message = Any
_Handler = Callable[[_Message], Awaitable[_Message]]


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A device that was prepared for a claim: for which of its requests, and as which CDI devices."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi: tuple[str, ...]
    share: str = ""  # shareID


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one claim of a call was not handled; the kubelet tries again."""

    message: str


Prepared = tuple[PreparedDevice, ...] | Failure
Unprepared = Failure | None


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """What a driver says of itself when the kubelet has found its registration socket."""

    name: str
    endpoint: Path
    type: str = PLUGIN_TYPE
    versions: tuple[str, ...] = (SERVICE,)


class Registrant(Protocol):
    """Who answers at the registration socket."""

    def info(self) -> PluginInfo:
        """Say who it is."""

    def notified(self, error: str | None) -> None:
        """The kubelet has registered it, or (with the error) refuses to."""


class Plugin(Protocol):
    """Who answers at the driver's own socket. Each claim of a call has an entry in its answer."""

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Prepared]:
        """Prepare claims; answers by claim UID."""

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Unprepared]:
        """Undo it; answers by claim UID."""


class Server:
    """One Unix socket at which one service is served; `start` makes the socket, `stop` takes it away."""

    def __init__(self, socket: Path, service: str, handlers: Mapping[str, tuple[str, _Handler]]) -> None:
        """`handlers` by method: the message of its request, and what answers it."""
        self.socket = socket
        self._service = service
        self._handlers = handlers
        self._server: Any = None

    async def start(self) -> None:
        """Listen. Raises OSError if the socket cannot be made."""
        if len(os.fsencode(self.socket)) > LONGEST_SOCKET:
            raise OSError(f"{self.socket} is longer than the {LONGEST_SOCKET} characters of a socket's path")
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)  # of an earlier life that crashed
        server = grpc.aio.server()
        methods = {
            method: grpc.unary_unary_rpc_method_handler(
                _answering(handler),
                request_deserializer=_message(request).FromString,
                response_serializer=_serialized,
            )
            for method, (request, handler) in self._handlers.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(self._service, methods),))
        server.add_insecure_port(f"unix:{self.socket}")
        await server.start()
        self._server = server

    async def stop(self, *, grace_seconds: float = 0) -> None:
        """Take the socket away and let the calls in flight end, so long. Nothing to do if it does not listen."""
        server, self._server = self._server, None
        if server is not None:
            self.socket.unlink(missing_ok=True)
            await server.stop(grace_seconds)

    @property
    def listens(self) -> bool:
        """Whether it has been started and not been stopped."""
        return self._server is not None


def registration_server(socket: Path, registrant: Registrant) -> Server:
    """Serve pluginregistration v1."""

    async def get_info(_: _Message) -> _Message:
        info = registrant.info()
        return _message(f"{_REGISTRATION_PACKAGE}.PluginInfo")(
            type=info.type,
            name=info.name,
            endpoint=str(info.endpoint),
            supported_versions=info.versions,
        )

    async def notify(status: _Message) -> _Message:
        registrant.notified(None if status.plugin_registered else status.error or "no reason given")
        return _message(f"{_REGISTRATION_PACKAGE}.RegistrationStatusResponse")()

    return Server(
        socket,
        f"{_REGISTRATION_PACKAGE}.Registration",
        {
            "GetInfo": (f"{_REGISTRATION_PACKAGE}.InfoRequest", get_info),
            "NotifyRegistrationStatus": (f"{_REGISTRATION_PACKAGE}.RegistrationStatus", notify),
        },
    )


def plugin_server(socket: Path, plugin: Plugin) -> Server:
    """Serve dra.k8s.io v1."""

    async def prepare(request: _Message) -> _Message:
        response = _message(f"{_DRA_PACKAGE}.NodePrepareResourcesResponse")()
        for uid, outcome in (await plugin.prepare(_claims(request))).items():
            entry = response.claims[uid]  # the access makes it
            if isinstance(outcome, Failure):
                entry.error = outcome.message
                continue
            for one in outcome:
                device = entry.devices.add()
                device.request_names.extend(one.requests)
                device.pool_name, device.device_name = one.pool, one.device
                device.cdi_device_ids.extend(one.cdi)
                if one.share:
                    device.share_id = one.share
        return response

    async def unprepare(request: _Message) -> _Message:
        response = _message(f"{_DRA_PACKAGE}.NodeUnprepareResourcesResponse")()
        for uid, outcome in (await plugin.unprepare(_claims(request))).items():
            entry = response.claims[uid]
            if outcome is not None:
                entry.error = outcome.message
        return response

    return Server(
        socket,
        f"{_DRA_PACKAGE}.DRAPlugin",
        {
            "NodePrepareResources": (f"{_DRA_PACKAGE}.NodePrepareResourcesRequest", prepare),
            "NodeUnprepareResources": (f"{_DRA_PACKAGE}.NodeUnprepareResourcesRequest", unprepare),
        },
    )


class Caller:
    """The kubelet's side of both services; use as `async with Caller(socket) as kubelet`, one for each socket.

    Methods raise `Unanswered` when the driver is not there, ends, or is too slow.
    """

    def __init__(self, socket: Path, *, timeout_seconds: float = 45.0) -> None:
        """45 seconds is what a kubelet waits for a driver's answer."""
        self._socket = socket
        self._timeout = timeout_seconds
        self._channel: Any = None

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(f"unix:{self._socket}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def get_info(self) -> PluginInfo:
        """Who is there."""
        said = await self._call(
            f"/{_REGISTRATION_PACKAGE}.Registration/GetInfo",
            _message(f"{_REGISTRATION_PACKAGE}.InfoRequest")(),
            f"{_REGISTRATION_PACKAGE}.PluginInfo",
        )
        return PluginInfo(said.name, Path(said.endpoint), said.type, tuple(said.supported_versions))

    async def notify(self, error: str | None = None) -> None:
        """Tell the driver that it is registered, or (with the error) why it is not."""
        status = _message(f"{_REGISTRATION_PACKAGE}.RegistrationStatus")
        await self._call(
            f"/{_REGISTRATION_PACKAGE}.Registration/NotifyRegistrationStatus",
            status(plugin_registered=error is None, error=error or ""),
            f"{_REGISTRATION_PACKAGE}.RegistrationStatusResponse",
        )

    async def prepare(self, *claims: ClaimRef) -> dict[str, Prepared]:
        """Call NodePrepareResources; answers by claim UID."""
        answer = await self._claims_call("NodePrepareResources", claims)
        return {
            uid: Failure(entry.error)
            if entry.error
            else tuple(
                PreparedDevice(
                    requests=tuple(device.request_names),
                    pool=device.pool_name,
                    device=device.device_name,
                    cdi=tuple(device.cdi_device_ids),
                    share=device.share_id,
                )
                for device in entry.devices
            )
            for uid, entry in answer.claims.items()
        }

    async def unprepare(self, *claims: ClaimRef) -> dict[str, Unprepared]:
        """Call NodeUnprepareResources; answers by claim UID."""
        answer = await self._claims_call("NodeUnprepareResources", claims)
        return {uid: Failure(entry.error) if entry.error else None for uid, entry in answer.claims.items()}

    async def _claims_call(self, method: str, claims: Sequence[ClaimRef]) -> _Message:
        request = _message(f"{_DRA_PACKAGE}.{method}Request")()
        for claim in claims:
            request.claims.add(namespace=claim.namespace, name=claim.name, uid=claim.uid)
        return await self._call(
            f"/{_DRA_PACKAGE}.DRAPlugin/{method}", request, f"{_DRA_PACKAGE}.{method}Response"
        )

    async def _call(self, method: str, request: _Message, response: str) -> _Message:
        call = self._channel.unary_unary(
            method,
            request_serializer=_serialized,
            response_deserializer=_message(response).FromString,
        )
        try:
            return await call(request, timeout=self._timeout)
        except grpc.aio.AioRpcError as error:
            raise Unanswered(f"{method}: {error.code().name}: {error.details()}") from error


class Unanswered(Exception):  # noqa: N818 - what befell the call, as a kubelet sees it
    """The driver did not answer a call."""


def ensure_protos() -> Path:
    """The kubelet's protos as descriptors, made once for each version into the cache."""
    version = module_version(TOOLS, _MODULE)
    made = cache_folder() / "protos" / f"kubelet-{version}.pb"
    if made.exists():
        return made
    source = module_folder(TOOLS, _MODULE)
    made.parent.mkdir(parents=True, exist_ok=True)
    partial = made.with_name(f"{made.name}.{os.getpid()}.partial")
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--descriptor_set_out={partial}"]
    try:
        subprocess.run([*command, _REGISTRATION, _DRA], cwd=source, check=True, capture_output=True)
        partial.rename(made)  # only a complete file gets the name
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise ToolchainError(f"the kubelet's protos in {source} cannot be read: {said}") from error
    finally:
        partial.unlink(missing_ok=True)
    return made


@cache
def _pool() -> Any:
    files = descriptor_pb2.FileDescriptorSet.FromString(ensure_protos().read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@cache
def _message(name: str) -> Any:
    """The class of a message, by its full name."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


def _claims(request: _Message) -> list[ClaimRef]:
    return [ClaimRef(one.namespace, one.name, one.uid) for one in request.claims]


def _serialized(message: _Message) -> bytes:
    said: bytes = message.SerializeToString()
    return said


def _answering(handler: _Handler) -> Callable[[_Message, Any], Awaitable[_Message]]:
    async def answer(request: _Message, _context: Any) -> _Message:
        return await handler(request)

    return answer
