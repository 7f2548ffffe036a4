"""Bugs in the Lua script of the Redis store; each function alters the script that its worker process sends."""

from .planting import alter_lua


def acquire_overwrites() -> None:
    """Acquire sets the key whoever holds it: SET without NX."""
    alter_lua(("'NX', 'GET', 'PX', math.floor(two / 1000)", "'GET', 'PX', math.floor(two / 1000)"))


def release_of_anybody() -> None:
    """Release frees the key, whoever holds it now."""
    alter_lua(("if r.state == 'h' and r.owner == owner then", "if r.state == 'h' then"), within="function ops.release(")


def expires_too_soon() -> None:
    """A hold counts as expired 0.7 s before its end."""
    alter_lua(("now >= r.ends)", "now >= r.ends - 700000)"), within="local function over(")
    alter_lua(("now < r.ends + r.delay", "now < r.ends - 700000 + r.delay"), within="function ops.acquire(")


def renewal_revives() -> None:
    """Renew extends a hold that has expired."""
    alter_lua((" and not over(r) then", " then"), within="function ops.renew(")


def token_is_resumed_again() -> None:
    """Resume takes the key from whoever holds it, and so from whoever resumed the token before."""
    anybodys = ("r.owner == owner and", "(r.owner == owner or successor) and")
    alter_lua(anybodys, ("displace(r, owner,", "displace(r, r.owner,"), within="function ops.renew(")


def fence_of_the_second() -> None:
    """Fences are seconds of the clock, and the counter is not looked at."""
    alter_lua(
        ("fence = now - 1", "fence = math.floor(now / 1000000) * 1000000"),
        ("if last and tonumber(last) >= now then", "if false then"),
    )


def seen_is_first() -> None:
    """A mark that another owner made is answered as if it were the first."""
    alter_lua(("firsts[i] = 0", "firsts[i] = 1"))


def mark_expires_too_soon() -> None:
    """The ttl of a mark is sent in seconds where milliseconds are meant."""
    alter_lua(("two / 1000 + slack", "two / 1000000 + slack"))


def finish_of_anybody() -> None:
    """A winner that lost its claim overwrites its successor's."""
    owned = "and string.sub(stored, 26, 26 + #one) == one .. '\\0' then\n      local under"
    alter_lua((owned, "and false then\n      local under"))
    mine = "if r.state == 'h' and r.owner == owner then"
    alter_lua((mine, "if r.state ~= 'f' then r.owner = owner"), within="function ops.finish(")


def take_of_the_taken() -> None:
    """Take finds items whether they are taken or not."""
    alter_lua(
        ("call('ZRANGEBYSCORE', name, '-inf', now,", "call('ZRANGEBYSCORE', name, '-inf', '+inf',"),
        ("if not may_be_taken(r) then return false end", ""),
        within="local function take_item(",
    )


def ack_keeps_the_item() -> None:
    """Ack answers that the item is gone, and leaves it."""
    alter_lua(("call('DEL', name)", "if true then return 1 end"), within="function ops.ack(")


def push_forgets() -> None:
    """Push answers that the item is in, and stores two of three."""
    alter_lua(("save(name, r)", "if now % 3 ~= 0 then save(name, r) end"), within="function ops.push(")


def limit_of_one_more() -> None:
    """A limit allows one hit too many."""
    alter_lua(("if hits >= limit then", "if hits > limit then"), within="function ops.hit(")


def quiet_is_short() -> None:
    """The quiet window after a record is a tenth of what was asked for."""
    alter_lua(("under, now + three, refused", "under, now + three / 10, refused"))
