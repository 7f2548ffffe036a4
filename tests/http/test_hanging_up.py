"""A client that hangs up while its request is processed, and sends it again: behind real servers."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from solely.integrations.idempotency import Rules
from solely.testing.http_idempotency import Target
from tests.http.service import HEADERS, Service, principal
from tests.http.serving import SERVERS
from tests.servers import until

REQUEST = (
    b"POST /slow HTTP/1.1\r\nHost: %b\r\nAuthorization: Bearer one\r\nContent-Type: application/json\r\n"
    b'Idempotency-Key: "hung-up"\r\nContent-Length: 2\r\n\r\n{}'
)


def test_who_hangs_up_and_asks_again_gets_the_response_of_the_one_execution(kind: str) -> None:
    service = Service()
    with SERVERS[kind](service, Rules(scope=principal), "memory://") as address:
        place = urlsplit(address)
        with socket.create_connection((place.hostname, place.port)) as connection:
            connection.sendall(REQUEST % place.netloc.encode())
            until(lambda: service.runs == ["/slow"], "the handler runs")
        replies = [Target(url=f"{address}/slow", body=b"{}", headers=HEADERS).send("hung-up") for _ in range(2)]
    assert [reply.status for reply in replies] == [201, 201]
    assert replies[0].body == replies[1].body
    assert service.runs == ["/slow"]
