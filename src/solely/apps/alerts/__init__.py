"""Alerts: one notification per alert, under any concurrency.

`inputs/` decode what senders post, the `receiver` asks `decision` whether it is sent, `suppression/` holds the reasons
not to notify and what fires now, and `notifications/` delivers to the `publishers/`. `records/`, `windows` and `worker`
are the layers below; `api/` and `pages/` serve operators. From the bottom up: model and decision, publishers, settings,
records, windows and worker, suppression, notifications, receiver, runtime, api, inputs and pages, app; none imports a
later one.
`acts` has the words of the API, the pages and `cli`.
"""
