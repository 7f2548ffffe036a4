"""A certificate of its own for a server of a test."""

import ssl
import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str, subject: str = "") -> Path:
    """A certificate of that name, which signs itself, with its key in the same file. `subject` has more attributes."""
    key, signed, both = (folder / f"{name}.{end}" for end in ("key", "crt", "pem"))
    named = ("-subj", f"{subject}/CN={name}", "-multivalue-rdn", "-utf8", "-addext", f"subjectAltName=DNS:{name}")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    command = ["openssl", "req", "-x509", *curve, *named, "-keyout", str(key), "-out", str(signed)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    both.write_text(key.read_text() + signed.read_text())
    return both


def server_side(certificate: Path) -> ssl.SSLContext:
    """What a server needs to show it."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    return tls
