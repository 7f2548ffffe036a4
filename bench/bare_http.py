"""python -m bench.bare_http --port N: only starlette and msgspec; reads a JSON body and writes one."""

import argparse

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class Acquire(msgspec.Struct):
    """As many fields as the request for a lock has."""

    key: str
    ttl: float
    wait: float


_decoder = msgspec.json.Decoder(Acquire)
_encode = msgspec.json.Encoder().encode


async def _echo(request: Request) -> Response:
    return Response(_encode(_decoder.decode(await request.body())), media_type="application/json")


def main() -> None:
    """Serves until the process is terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    app = Starlette(routes=[Route("/echo", _echo, methods=["POST"])])
    uvicorn.run(
        app, port=parser.parse_args().port, loop="uvloop", http="httptools", log_level="error", access_log=False
    )


if __name__ == "__main__":
    main()
