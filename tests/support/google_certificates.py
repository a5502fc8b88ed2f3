"""A certificate for Google's hosts by an authority of a test's own, and a service account's key."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

HOSTS = (
    "localhost",
    "www.googleapis.com",
    "storage.googleapis.com",
    "oauth2.googleapis.com",
    "iamcredentials.googleapis.com",
)


class CertificateFiles(NamedTuple):
    """PEM files of TLS, and the JSON of the service account."""

    authority: Path
    certificate: Path
    key: Path
    account: Path


def write_certificates(folder: Path) -> CertificateFiles:
    """Writes the files, valid for a day; the service account signs with the same key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.timezone.utc)
    hosts = x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(hosts, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    files = CertificateFiles(
        *(folder / each for each in ("ca.pem", "cert.pem", "key.pem", "account.json"))
    )
    files.authority.write_bytes(pem)
    files.certificate.write_bytes(pem)
    files.key.write_bytes(private)
    account = {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "1",
        "private_key": private.decode(),
        "client_email": "account@project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    files.account.write_text(json.dumps(account))
    return files
