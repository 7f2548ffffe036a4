"""Triggers: same idempotency key, same run id, always.

`pipeline` decides about a trigger: look-ups in SQL and in the `buffer`, the `claim` of its key, then the `gate`, which
diverts bursts to the buffer. The `drainer` moves buffered runs to SQL, and `changes` reaches a run wherever it is.
`work` leases stored runs to workers, and is their Python worker.

From the bottom up: model, settings, figures and batches, lists, table, uploads and work, buffer, gate and claim,
drainer, changes, pipeline and replay, runtime, api, views, pages and operators, app; none imports a later one. `acts`
has the words of the API, the pages and `cli`.
"""
