"""Probes: one synthetic probe per target at a time, over any number of replicas.

From the bottom up: `model` (targets, results), `settings`, `checks/` (how a target is called, and what is expected of
it), `mutex`, `prober` (a check under the mutex, and the synthetic login test), `history` (states, uptime), `targets`
(of the settings and of the database), `runner` (which target is probed when), `runtime` (these parts together), `api`,
`exporter`, `pages` and `app`; none imports a later one. `acts` has the words of the API, the pages and the commands.
"""
