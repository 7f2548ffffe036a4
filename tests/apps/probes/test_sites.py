"""The sites that tests probe leave nothing open, however their peers behave: what is left would fail another test."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from tests.apps.hooks import hooks_aside
from tests.apps.probes.sites import counting_site
from tests.certificates import make_certificate, server_side
from tests.service.serving import until


def test_a_peer_that_says_no_good_bye_over_tls_leaves_no_connection_open(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "localhost")
    trusting = ssl.create_default_context(cafile=str(certificate))
    with hooks_aside(server_side(certificate)) as site:
        plain = socket.create_connection(("127.0.0.1", site.port))
        peer = trusting.wrap_socket(plain, server_hostname="localhost")
        peer.sendall(b"GET / HTTP/1.1\r\n")
    peer.close()


def test_a_peer_that_reads_nothing_leaves_no_connection_open() -> None:
    with counting_site(pause=3600) as site:
        peers = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(20)]
        for peer in peers[:10]:
            peer.sendall(b"GET /x HTTP/1.1\r\n\r\n")
        until(lambda: site.at_once["x"] == 10)
    for peer in peers:
        peer.close()
