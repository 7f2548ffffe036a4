"""The URLs of the Django site that tests log in to: Django's own login view, and a page that needs the session."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from tests.apps.probes.sites import PASSWORD, USER


class OneUser(BaseBackend):  # type: ignore[misc]  # Django ships no types
    """Knows one user, without a table of users."""

    def authenticate(self, request: Any, username: str = "", password: str = "", **_: Any) -> Any:
        return _user() if (username, password) == (USER, PASSWORD) else None

    def get_user(self, id: int) -> Any:
        return _user() if id == 1 else None


def _user() -> Any:
    user = User(id=1, username=USER, password="!")
    user.save = lambda *_, **__: None  # the time of the last login is kept nowhere
    return user


@login_required  # type: ignore[untyped-decorator]  # Django ships no types
def account(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"Welcome! Signed in as {request.user.username}")


def health(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"ok": True})


class Forgetful(LoginView):  # type: ignore[misc]  # Django ships no types
    """Logs in and redirects, as it should; the session is lost at once, as behind a broken session store."""

    success_url = next_page = "/account/"

    def dispatch(self, request: Any, *args: Any, **more: Any) -> Any:
        response = super().dispatch(request, *args, **more)
        request.session.flush()
        return response


urlpatterns = [
    path("login/", LoginView.as_view()),
    path("forgetful/login/", Forgetful.as_view()),
    path("account/", account),
    path("health", health),
]
