"""Jobs: each is performed once, in a fresh clone; those that write hold the lock of their repository."""
