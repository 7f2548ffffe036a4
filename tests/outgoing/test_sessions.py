"""Sessions: cookies of their own."""

from solely.outgoing import Request
from tests.apps.hooks import Answer, Hooks, hooks
from tests.outgoing.conftest import Making


def setting(*cookies: str, status: int = 200, to: str = "") -> Answer:
    return Answer(status, (*(("Set-Cookie", cookie) for cookie in cookies), *((("Location", to),) if to else ())))


async def test_what_a_login_sets_is_sent_by_later_calls_of_its_session_only(make: Making, receiver: Hooks) -> None:
    caller = make()
    one, two = caller.session(), caller.session()
    receiver.answers.append(setting("sid=1; Path=/", "theme=dark", status=303, to="/home"))
    await one.call_ok(Request("POST", receiver.url, body=b"user=a"))
    await one.call_ok(Request("GET", receiver.url))
    for other in (two, caller):
        await other.call_ok(Request("GET", receiver.url))
    sent = [came.headers.get("cookie") for came in receiver.received]
    assert sent == [None, "sid=1", "theme=dark; sid=1", None, None]
    assert receiver.connections == 1


async def test_a_caller_without_session_keeps_no_cookies(make: Making, receiver: Hooks) -> None:
    receiver.answers.append(setting("sid=1; Path=/", status=302, to="/home"))
    await make().call_ok(Request("GET", receiver.url))
    assert ["cookie" in came.headers for came in receiver.received] == [False, False]


async def test_another_host_gets_no_cookie(make: Making, receiver: Hooks) -> None:
    session = make().session()
    async with hooks() as other:
        receiver.answers.append(setting("sid=1; Path=/", status=302, to=f"http://localhost:{other.port}/"))
        await session.call_ok(Request("GET", receiver.url))
        assert "cookie" not in other.received[0].headers


async def test_a_cookie_expires(make: Making, receiver: Hooks) -> None:
    session = make().session()
    receiver.answers.extend([setting("sid=1; Path=/"), setting("sid=; Path=/; Max-Age=0")])
    for _ in range(3):
        await session.call_ok(Request("GET", receiver.url))
    assert [came.headers.get("cookie") for came in receiver.received] == [None, "sid=1", None]


async def test_a_cookie_that_cannot_be_sent_is_ignored(make: Making, receiver: Hooks) -> None:
    session = make(retries=0).session()
    strange = ("a=\u00fc\u20ac", "b=\x01", "c=" + "y" * 5000, "=; =", ";" * 99, "d=1; Path=/; Expires=never")
    receiver.answers.append(setting(*strange))
    for _ in range(2):
        await session.call_ok(Request("GET", receiver.url))
    assert [came.headers.get("cookie") for came in receiver.received] == [None, "d=1"]


async def test_a_session_keeps_no_more_cookies_than_its_bound(make: Making, receiver: Hooks) -> None:
    session = make(retries=0).session()
    receiver.answers.extend(setting(*(f"c{page}-{number}=1; Path=/" for number in range(100))) for page in range(4))
    for _ in range(5):
        await session.call_ok(Request("GET", receiver.url))
    assert receiver.received[-1].headers["cookie"].count("=") == 200


async def test_a_session_says_which_cookies_it_has(make: Making, receiver: Hooks) -> None:
    caller = make()
    session = caller.session()
    receiver.answers.append(setting("sid=1; Path=/", "theme=dark", status=303, to="/home"))
    await session.call_ok(Request("POST", receiver.url, body=b"user=a"))
    assert (session.cookies, caller.cookies) == ({"sid": "1", "theme": "dark"}, {})


async def test_without_reuse_every_request_opens_a_connection(make: Making, receiver: Hooks) -> None:
    caller = make(reuse=False)
    for _ in range(3):
        response = await caller.call_ok(Request("GET", receiver.url))
        assert response.timings.connect > 0
    assert receiver.connections == 3
