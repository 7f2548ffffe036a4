"""A typed client of the service's JSON API: one attribute per noun, one method per route.

    with solely.http.Client("https://locks.example.org", token="…") as service:
        lock = service.locks.acquire("repo:42", ttl=30, wait=5)
        service.locks.release(lock.token)

Responses have the types that the service declares; refusals are raised as errors of the library. To use a service as a
store, with automatic renewal and everything else that the library offers, open `solely.Client("https://…")` instead.
"""

from .client import Client

__all__ = ["Client"]
