"""The certificate authority of a test bed and the certificates it issues; they live as long as the run."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME: Final = datetime.timedelta(days=30)
# Clocks of containers and their hosts differ a little: a certificate must be valid the moment it is made.
_BACKDATE: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, as PEM texts."""

    certificate: str
    key: str

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write NAME.crt and NAME.key (for its owner alone) and return their paths."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_text(self.certificate)
        write_private(key, self.key)
        return certificate, key


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority."""

    pair: KeyPair

    @classmethod
    def create(cls, name: str = "lab") -> Self:
        """A new authority with a key of its own."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}-ca")])
        certificate = (
            _builder(subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(_pem(certificate, key))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The authority that `write` left in a folder."""
        return cls(KeyPair((folder / "ca.crt").read_text(), (folder / "ca.key").read_text()))

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write ca.crt and ca.key."""
        return self.pair.write(folder, "ca")

    def server(self, name: str, names: Sequence[str]) -> KeyPair:
        """A server's certificate for host names and IP addresses."""
        alternatives: list[x509.GeneralName] = []
        for entry in names:
            try:
                alternatives.append(x509.IPAddress(ipaddress.ip_address(entry)))
            except ValueError:
                alternatives.append(x509.DNSName(entry))
        return self._issue(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            ExtendedKeyUsageOID.SERVER_AUTH,
            x509.SubjectAlternativeName(alternatives),
        )

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A certificate by which Kubernetes knows a client as `user` (CN), a member of `groups` (O)."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, names: x509.SubjectAlternativeName | None
    ) -> KeyPair:
        authority = x509.load_pem_x509_certificate(self.pair.certificate.encode())
        authority_key = serialization.load_pem_private_key(self.pair.key.encode(), None)
        assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, authority.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return _pem(builder.sign(authority_key, hashes.SHA256()), key)


def signing_key() -> tuple[str, str]:
    """A private and a public key, as PEM, for the tokens of service accounts."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _pem_key(key), public.decode()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    path.touch(mode=0o600)
    path.write_text(text)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + _LIFETIME)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM).decode(), _pem_key(key))


def _pem_key(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
