"""Fork: a claim is its process's own; the child neither publishes nor releases it, and asks for itself."""

import pytest

import solely
from solely import Client, State
from tests.claims.modes import Peek
from tests.client.test_fork import in_child

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def test_the_child_does_not_end_its_parents_claim(store_url: str) -> None:
    with Client(store_url) as once:
        claim = once.claim("a")

        def child() -> None:
            assert claim.lost_how == "forked"
            with pytest.raises(solely.LeaseLost, match="forked"):
                claim.publish("child")
            assert claim.fail(ValueError()) is solely.Failing.LOST
            with pytest.raises(ZeroDivisionError), claim:
                raise ZeroDivisionError
            assert claim.release() is solely.Released.UNKNOWN

        in_child(child)
        with Peek(store_url) as peek:
            assert peek("a").state is State.HELD
        assert claim.publish("parent").published


def test_the_child_claims_for_itself(shared_url: str) -> None:
    with Client(shared_url, cache=True) as once:
        once.claim("done").publish(1)

        def child() -> None:
            assert once.claim("done").value == 1
            once.claim("mine").publish("child")

        in_child(child)
        assert once.claim("mine").value == "child"
