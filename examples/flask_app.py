"""Flask: an order is processed once per Idempotency-Key.

    SOLELY_URL=redis://localhost waitress-serve --listen=127.0.0.1:8000 examples.flask_app:app
    curl -d '{"item": "tea"}' -H 'Content-Type: application/json' -H 'Authorization: Bearer one' \\
        -H 'Idempotency-Key: "7f3c"' localhost:8000/orders
"""

import secrets
from typing import Any

from flask import Flask, request

import solely
from solely.integrations.wsgi import IdempotencyMiddleware, Rules

CUSTOMERS = {"Bearer one": "ann", "Bearer two": "bob"}  # your authentication; a middleware around ours may do it too

app = Flask(__name__)
app.wsgi_app = IdempotencyMiddleware(  # type: ignore[method-assign]
    app.wsgi_app,
    once=solely.Client(),  # the store that SOLELY_URL names
    rules=Rules(scope=lambda request: CUSTOMERS.get(request.header("authorization") or "")),
)


@app.post("/orders")
def take_order() -> tuple[dict[str, Any], int, dict[str, str]]:
    id = secrets.token_hex(8)
    return {"id": id, "order": request.get_json()}, 201, {"Location": f"/orders/{id}"}


@app.post("/refunds")
def take_refund() -> tuple[dict[str, Any], int]:
    return {"id": secrets.token_hex(8), "refund": request.get_json()}, 201
