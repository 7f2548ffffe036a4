"""Promises about reading: Read and scan change nothing and reveal no owner id."""

from __future__ import annotations

from collections.abc import Iterator

from ...formats import write_watermark
from ...kinds import allowed
from ...model import Entry, Finding, State, item_key
from ...ops import Acquire, Advance, Clear, Finish, Mark, Push, Read, Release, Renew
from ..clock import ManualClock
from ..harness import Harness, fresh

KEYS = (
    "x", "with space", "a:b:c", "*", "?[a-z]*\\", "{tag}", "ключ", "鍵🔑", "%00%", "'\";--", "a\nb", "a/b/c", "k" * 480,
)  # fmt: skip


def cut_text(size: int, offset: int) -> str:
    """Returns a text of `size` bytes: ASCII up to the offset, then four-byte characters, then ASCII as padding."""
    letters = max(0, size - offset) // 4
    return "a" * min(offset, size) + "\N{KEY}" * letters + "z" * (size - min(offset, size) - 4 * letters)


class ReadingPromises:
    """Read, scan, check and close."""

    def test_an_unknown_key_is_free(self, store: Harness) -> None:
        key = fresh("lock/unknown")
        assert store.one(Read(key)) == Entry(key, State.FREE)

    def test_reading_changes_nothing(self, store: Harness) -> None:
        key = fresh("lock/read")
        store.one(Acquire(key, "holder", 10))
        assert len({store.one(Read(key)) for _ in range(3)}) == 1

    def test_any_text_can_be_a_key(self, store: Harness) -> None:
        prefix = fresh("lock/any") + "/"
        keys = [prefix + name for name in KEYS]
        for key in keys:
            assert store.one(Acquire(key, f"owner of {key}", 10)).owner == f"owner of {key}"
        for key in keys:
            assert store.one(Read(key)).key == key
            assert store.one(Renew(key, f"owner of {key}", 10)).owner == f"owner of {key}"
        assert [entry.key for entry in store.scan(prefix)] == sorted(keys)

    def test_a_key_of_512_bytes_is_kept_whole(self, store: Harness) -> None:
        stem = fresh("long")
        longest = [f"lock/{(stem + 'é' * 300).encode()[:511].decode(errors='ignore')}{end}"[:600] for end in "ab"]
        assert all(len(key.encode()) in (516, 517) for key in longest)
        for key in longest:
            assert store.one(Acquire(key, f"owner-{key[-1]}", 10)).owner == f"owner-{key[-1]}"
        assert [entry.key for entry in store.scan(f"lock/{stem}")] == longest

    def test_a_held_key_is_refused_whatever_its_characters_and_length(self, store: Harness) -> None:
        """A server may quote the key in an error and truncate it in the middle of a character."""
        stem = fresh("lock/cut") + "/"
        keys = [stem + cut_text(size, offset) for size in (64, 96, 128, 192, 256, 384, 480) for offset in range(4)]
        for entry in store.perform(*(Acquire(key, "holder", 10) for key in keys)):
            assert isinstance(entry, Entry)
            assert entry.owner == "holder"
        for key in keys:
            entry = store.one(Acquire(key, "other", 10))
            assert (entry.key, entry.state, entry.owner) == (key, State.HELD, "")
            mark = key.replace("lock/", "mark/", 1)
            assert store.one(Mark(mark, "holder", 10)) is True
            assert store.one(Mark(mark, "other", 10)) is False

    def test_wildcards_in_a_prefix_match_literally(self, store: Harness) -> None:
        stem = fresh("lock/glob")
        store.perform(*(Acquire(f"{stem}/{name}", "owner", 10) for name in ("*", "a", "?", "[a]", "%", "_")))
        for name in ("*", "?", "[a]", "%", "_"):
            assert [entry.key for entry in store.scan(f"{stem}/{name}")] == [f"{stem}/{name}"]

    def test_scan_pages_through_a_prefix_in_key_order(self, store: Harness) -> None:
        prefix = fresh("lock/page") + "/"
        keys = [f"{prefix}{n:02}" for n in range(25)]
        store.perform(*(Acquire(key, "owner", 10) for key in reversed(keys)), Acquire(prefix[:-1] + "0", "owner", 10))
        pages, after = list[list[str]](), ""
        while page := store.scan(prefix, after, 10):
            pages.append([entry.key for entry in page])
            after = page[-1].key
            assert len(pages) < 10
        assert pages == [keys[:10], keys[10:20], keys[20:]]

    def test_reservations_watermarks_and_items_are_paged_like_locks(self, store: Harness) -> None:
        """A store may list them in another way: they are what people and workers list."""
        part, names = fresh("paged"), [f"{n:02}" for n in range(25)]
        store.perform(*(Acquire(f"reservation/{part}/{name}", "o", 10, counted=True) for name in reversed(names)))
        store.perform(*(Advance(f"watermark/{part}/{name}", write_watermark(7)) for name in reversed(names)))
        store.perform(*(Push(part, name, b"p") for name in reversed(names)), Push(part + "/", "00", b"p"))
        for stem in (f"reservation/{part}/", f"watermark/{part}/", item_key(part, "")):
            keys = [stem + name for name in names]
            gone = store.one(Read(keys[12]))
            assert store.one(Clear(gone.key, gone.fence, "test")) is True
            keys.remove(gone.key)
            assert [entry.key for entry in store.scan(stem)] == keys
            assert [entry.key for entry in store.scan(stem, keys[3], 5)] == keys[4:9]
            assert [entry.key for entry in store.scan(stem, gone.key, 100)] == keys[12:]
            assert [entry.key for entry in store.scan(stem + "1")] == keys[10:19]
            assert store.scan(stem, keys[-1]) == []

    def test_scan_returns_held_done_closed_and_queued_entries_only(self, store: Harness, clock: ManualClock) -> None:
        part, seven = fresh("scan"), write_watermark(7)
        store.perform(
            Acquire(f"lock/{part}/expired", "o", 1), Mark(f"mark/{part}/expired", "o", 1),
            Acquire(f"lock/{part}/held", "o", 10), Mark(f"mark/{part}", "o", 10), Advance(f"watermark/{part}", seven),
            Acquire(f"lock/{part}/closed", "o", 10), Release(f"lock/{part}/closed", "o", delay=10),
            Acquire(f"lock/{part}/released", "o", 10), Release(f"lock/{part}/released", "o"),
            Acquire(f"claim/{part}", "o", 10), Finish(f"claim/{part}", "o", b"b42", 10), Push(part, "job", b"p"),
        )  # fmt: skip
        clock.advance(1)
        shown = {e.key: (e.state, e.value) for kind in ("", "item/") for e in _all_pages(store, kind) if part in e.key}
        assert shown == {
            f"lock/{part}/held": (State.HELD, None),
            f"lock/{part}/closed": (State.CLOSED, None),
            f"mark/{part}": (State.DONE, None),
            f"watermark/{part}": (State.DONE, seven),
            f"claim/{part}": (State.DONE, b"b42"),
            f"item/{part}/job": (State.FREE, b"p"),
        }

    def test_scan_and_read_return_the_same_entry(self, store: Harness) -> None:
        key = fresh("claim/same")
        store.perform(
            Acquire(key, "o", 10, info="who", fingerprint="f"), Acquire(key, "p", 10, client="c", counted=True)
        )
        (listed,) = store.scan(key)
        assert listed == store.one(Read(key))
        assert (listed.waiters, listed.refused, listed.info, listed.fingerprint) == (1, 1, "who", "f")
        assert (listed.kind, listed.name) == ("claim", key.removeprefix("claim/"))

    def test_an_owner_id_is_never_shown_to_others(self, store: Harness, clock: ManualClock) -> None:
        part, secret = fresh("secret"), fresh("owner-secret")
        locked, marked, done = f"lock/{part}", f"mark/{part}", f"claim/{part}"
        store.perform(Acquire(locked, secret, 10), Mark(marked, secret, 10))
        store.perform(Acquire(done, secret, 10), Finish(done, secret, b"b", 10))
        for _ in range(2):
            for key in (locked, marked, done):
                ops = (
                    Read(key),
                    Renew(key, "x", 1),
                    Finish(key, "x", b"b", 1),
                    Acquire(key, "x", 1),
                    Mark(key, "x", 1),
                )
                replies = store.perform(*(op for op in ops if allowed(type(op), key.partition("/")[0])))
                assert secret not in repr(replies)
                assert secret not in repr(store.scan(key))
                store.one(Release(key, "x", revoke=True))
            clock.advance(10)

    def test_check_returns_findings(self, store: Harness) -> None:
        findings = store.check()
        assert findings
        assert all(isinstance(finding, Finding) for finding in findings)
        assert {finding.level for finding in findings} <= {"ok", "warning", "error"}
        assert all(finding.subject and finding.text for finding in findings)

    def test_closing_twice_is_safe(self, store: Harness) -> None:
        store.one(Read(fresh("lock/close")))
        store.close()
        store.close()


def _all_pages(store: Harness, prefix: str) -> Iterator[Entry]:
    """All entries with this prefix: of a shared server they may be many."""
    after = ""
    while page := store.scan(prefix, after):
        yield from page
        after = page[-1].key
