"""A typed client of the service's JSON API: one attribute per noun, one method per route.

    with solely.http.Client("https://locks.example.org", token="…") as service:
        lock = service.locks.acquire("repo:42", ttl=30, wait=5)
        service.locks.release(lock.token)

Answers are the very types that the service declares; refusals are raised as the library's errors. To use a service as
a store, with leases that are renewed and all else that the library does, open `solely.Client("https://…")` instead.
"""

from .client import Client

__all__ = ["Client"]
