"""FastAPI: an order is processed once per Idempotency-Key.

    SOLELY_URL=redis://localhost uvicorn examples.fastapi_app:app
    curl -d '{"item": "tea"}' -H 'Content-Type: application/json' -H 'Authorization: Bearer one' \\
        -H 'Idempotency-Key: "7f3c"' localhost:8000/orders
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from pydantic import BaseModel

import solely
from solely.integrations.asgi import IdempotencyMiddleware, Rules

CUSTOMERS = {"Bearer one": "ann", "Bearer two": "bob"}  # your authentication; a middleware around ours may do it too

once = solely.AsyncClient()  # the store that SOLELY_URL names


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with once:
        yield


app = FastAPI(lifespan=lifespan)
app.add_middleware(
    IdempotencyMiddleware,
    once=once,
    rules=Rules(scope=lambda request: CUSTOMERS.get(request.header("authorization") or "")),
)


class Order(BaseModel):
    item: str
    quantity: int = 1


class Taken(BaseModel):
    id: str
    order: Order
    attempt: int


@app.post("/orders", status_code=201)
async def take_order(order: Order, request: Request) -> Taken:
    claim = request.scope["solely.claim"]
    await claim.ensure(1.0)  # before an irreversible side effect: raises if another process has taken over
    return Taken(id=secrets.token_hex(8), order=order, attempt=claim.attempt)


@app.post("/refunds", status_code=201)
async def take_refund(order: Order) -> dict[str, str]:
    return {"id": secrets.token_hex(8), "refund": order.item}
