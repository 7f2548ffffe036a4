"""python -m bench.bare_http --port N: starlette and msgspec, and nothing else: reads a body, writes one."""

import argparse

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class Asked(msgspec.Struct):
    """As much as a lock is asked for with."""

    key: str
    ttl: float
    wait: float


_decoder = msgspec.json.Decoder(Asked)
_encode = msgspec.json.Encoder().encode


async def _echo(request: Request) -> Response:
    return Response(_encode(_decoder.decode(await request.body())), media_type="application/json")


def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    app = Starlette(routes=[Route("/echo", _echo, methods=["POST"])])
    uvicorn.run(
        app, port=parser.parse_args().port, loop="uvloop", http="httptools", log_level="error", access_log=False
    )


if __name__ == "__main__":
    main()
