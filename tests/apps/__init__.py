"""Tests of the applications, and what all of them share:

- `fleet`: `fleet(kind, app, url, folder, …)` runs `solely serve` with several workers that share a store, for real.
  Workers can be found, killed and paused while they work; `insist_on` repeats a request until it succeeds.
- `volley`: `volley(port, requests, at_once, headers)` has many senders at once, each on a connection of its own.
- `inbox`: `inbox(subject)` is a receiver of signed webhooks, on threads. It knows which process calls it, and
  `meet_next` has a test act (kill, wait, drop) in the middle of a delivery.
- `hooks`: `hooks()` is a receiver on the test's event loop that fails, hangs, trickles, redirects and floods as the
  test says; `hooks_aside()` is one on a thread, for tests that block.
- `operator`: `operating(app, settings, …)` is a service in this process with one application, as senders and operators
  call it.

`tests/certificates.py` makes certificates for either receiver, and `tests/service/serving.py` starts the service. What
only one application needs is in its own folder: `alerts/fleet.py` adds alerts to the fleet, and `alerts/working.py` has
a worker of the alert receiver without HTTP.
"""
