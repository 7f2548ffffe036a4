"""Pages of an API, as GitLab and Jira have them."""

import json
from typing import Any

import httpx2
import pytest

from solely.outgoing import CallFailed, NextPage, Request, Response, Timings, by_header, by_link, by_offset, by_token
from tests.apps.hooks import Answer, Hooks, hooks
from tests.outgoing.conftest import Making


def answer(body: Any = None, **headers: str) -> Answer:
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Answer(headers=pairs, body=json.dumps(body).encode())


async def paths(make: Making, receiver: Hooks, next: NextPage, query: str = "", most: int = 100) -> list[str]:
    url = f"http://127.0.0.1:{receiver.port}/list{query}"
    async for page in make().pages(Request("GET", url, {"Private-Token": "t"}), next, most):
        assert page.ok
    assert all(came.headers["private-token"] == "t" for came in receiver.received)
    return [came.path for came in receiver.received]


async def test_by_link(make: Making, receiver: Hooks) -> None:
    base = f"http://127.0.0.1:{receiver.port}"
    receiver.answers.extend(
        [
            answer(
                link=f'<{base}/list?a=1,2;3&page=1>; rel="first", <{base}/list?a=1,2;3&page=2>; title="x"; rel="next"'
            ),
            answer(link='</list?page=3>; REL=next; foo, </list?page=9>; rel="last"'),
            answer(link='</list?page=1>; rel="prev first"'),
        ]
    )
    assert await paths(make, receiver, by_link) == ["/list", "/list?a=1,2;3&page=2", "/list?page=3"]


async def test_by_header_as_of_gitlab(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend([answer(X_Next_Page="2"), answer(X_Next_Page="3"), answer(X_Next_Page="")])
    found = await paths(make, receiver, by_header(), "?per_page=5")
    assert found == ["/list?per_page=5", "/list?per_page=5&page=2", "/list?per_page=5&page=3"]


async def test_by_token_as_of_jira(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend([answer({"nextPageToken": "a&b=c"}), answer({"isLast": True})])
    assert await paths(make, receiver, by_token()) == ["/list", "/list?nextPageToken=a%26b%3Dc"]


async def test_by_a_token_within_others(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend([answer({"paging": {"next": "x"}}), answer({"paging": None})])
    assert await paths(make, receiver, by_token("paging.next", "cursor")) == ["/list", "/list?cursor=x"]


async def test_by_offset_as_of_jira(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend(
        [
            answer({"issues": [1, 2], "total": 5}),
            answer({"issues": [3, 4], "total": 5}),
            answer({"issues": [5], "total": 5}),
        ]
    )
    assert await paths(make, receiver, by_offset("issues")) == ["/list", "/list?startAt=2", "/list?startAt=4"]


async def test_an_empty_page_is_the_last(make: Making, receiver: Hooks) -> None:
    receiver.answers.append(answer({"issues": [], "total": 5}))
    assert await paths(make, receiver, by_offset("issues")) == ["/list"]


async def test_too_many_pages_are_a_failure_and_no_silent_end(make: Making, receiver: Hooks) -> None:
    receiver.answers.extend(answer(X_Next_Page=str(page)) for page in range(2, 9))
    with pytest.raises(CallFailed, match="has more than 3 pages") as raised:
        await paths(make, receiver, by_header(), most=3)
    assert raised.value.permanent
    assert len(receiver.received) == 3


async def test_a_page_that_leads_to_itself_is_a_failure(make: Making, receiver: Hooks) -> None:
    receiver.answers.append(answer(link="</list>; rel=next"))
    with pytest.raises(CallFailed, match="names the same page as the next one"):
        await paths(make, receiver, by_link)


async def test_a_page_at_another_origin_gets_no_credentials(make: Making, receiver: Hooks) -> None:
    async with hooks() as other:
        receiver.answers.append(answer(link=f"<{other.url}>; rel=next"))
        with pytest.raises(CallFailed, match="next page at another scheme, host or port: not called"):
            await paths(make, receiver, by_link)
        assert other.connections == 0


@pytest.mark.parametrize("target", ["http://[::1", "http://u:p@127.0.0.1/", "file:///etc/passwd", "/a#b"])
async def test_an_invalid_next_page(make: Making, receiver: Hooks, target: str) -> None:
    receiver.answers.append(answer(link=f"<{target}>; rel=next"))
    with pytest.raises(CallFailed, match=r"names an invalid next page|another scheme"):
        await paths(make, receiver, by_link)


@pytest.mark.parametrize("body", [{"issues": 5, "total": 9}, {"issues": [1], "total": "x"}, [1]])
async def test_a_body_of_another_form(make: Making, receiver: Hooks, body: Any) -> None:
    receiver.answers.append(answer(body))
    with pytest.raises(CallFailed, match=r"names an invalid next page|JSON that was not expected"):
        await paths(make, receiver, by_offset("issues"))


@pytest.mark.parametrize("header", ["<" * 60_000, "<a>" + ";" * 60_000, "<a>" + "; a=" * 15_000, "<a>;" + " " * 60_000])
def test_a_hostile_link_takes_no_time(header: str) -> None:
    response = Response(200, httpx2.Headers({"link": header}), b"", "http://a.example/", Timings())
    assert by_link(Request("GET", "http://a.example/"), response) is None  # the test's time limit is the assertion
