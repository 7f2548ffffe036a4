"""Django: an order is taken once per Idempotency-Key. In a project of yours, only the last statement is new (wsgi.py).

    SOLELY_URL=redis://localhost waitress-serve --listen=127.0.0.1:8000 examples.django_app:app
    curl -d '{"item": "tea"}' -H 'Authorization: Bearer one' -H 'Idempotency-Key: "7f3c"' localhost:8000/orders

For ASGI wrap `get_asgi_application()` with the middleware of `solely.integrations.asgi` and an `AsyncClient`.
"""

import json
import secrets

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.http import require_POST

import solely
from solely.integrations.wsgi import IdempotencyMiddleware, Rules

CUSTOMERS = {"Bearer one": "ann", "Bearer two": "bob"}  # the middleware stands before Django's own authentication

settings.configure(
    ALLOWED_HOSTS=["localhost", "127.0.0.1"],
    ROOT_URLCONF=__name__,
    SECRET_KEY=secrets.token_hex(32),
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
)


@require_POST
def take_order(request: HttpRequest) -> JsonResponse:
    order = {"id": secrets.token_hex(8), "order": json.loads(request.body)}
    return JsonResponse(order, status=201, headers={"Location": f"/orders/{order['id']}"})


@require_POST
def take_refund(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"id": secrets.token_hex(8), "refund": json.loads(request.body)}, status=201)


urlpatterns = [path("orders", take_order), path("refunds", take_refund)]

app = IdempotencyMiddleware(
    get_wsgi_application(),
    once=solely.Client(),  # the store that SOLELY_URL names
    rules=Rules(scope=lambda request: CUSTOMERS.get(request.header("authorization") or "")),
)
