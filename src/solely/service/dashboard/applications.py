"""Applications: where the pages of what else is mounted are found."""

from __future__ import annotations

from ..routes import Answer, Call, Route
from .desk import AppPage
from .rendering import READ_PAGE, Page, View, show

PAGE = Page("Applications", "solely:applications.html", "/applications")


class Applications(Answer):
    """The pages of applications."""

    pages: list[AppPage]


async def applications(call: Call[None, View]) -> object:
    """The list."""

    async def look() -> Applications:
        return Applications(pages=call.service.desk.pages)

    return await show(call, PAGE, look)


ROUTES = [Route("GET", "/applications", READ_PAGE, applications, PAGE.title, hidden=True)]
