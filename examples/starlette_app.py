"""Starlette: an order is processed once per Idempotency-Key.

SOLELY_URL=redis://localhost uvicorn examples.starlette_app:app
curl -d '{"item": "tea"}' -H 'Authorization: Bearer one' -H 'Idempotency-Key: "7f3c"' localhost:8000/orders
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import solely
from solely.integrations.asgi import IdempotencyMiddleware, Rules

CUSTOMERS = {"Bearer one": "ann", "Bearer two": "bob"}  # your authentication; a middleware around ours may do it too

once = solely.AsyncClient()  # the store that SOLELY_URL names


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with once:
        yield


async def take_order(request: Request) -> JSONResponse:
    order = {"id": secrets.token_hex(8), "order": await request.json()}
    return JSONResponse(order, status_code=201, headers={"Location": f"/orders/{order['id']}"})


async def take_refund(request: Request) -> JSONResponse:
    return JSONResponse({"id": secrets.token_hex(8), "refund": await request.json()}, status_code=201)


rules = Rules(scope=lambda request: CUSTOMERS.get(request.header("authorization") or ""))
app = Starlette(
    routes=[
        Route("/orders", take_order, methods=["POST"]),
        Route("/refunds", take_refund, methods=["POST"]),
    ],
    middleware=[Middleware(IdempotencyMiddleware, once=once, rules=rules)],
    lifespan=lifespan,
)
