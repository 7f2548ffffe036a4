"""Alerts: one notification per alert, under any concurrency.

`inputs/` decode what senders post, the `receiver` asks `decision` whether it is sent, `suppression/` holds the reasons
not to notify and what fires now, and `notifications/` delivers to the `publishers`, as `messages`. The layers below are
`history`, `reports`, `windows` and `worker`; `api/` and `pages` serve operators. From the bottom up: model and
decision, messages, publishers, settings, history, windows and worker, reports, suppression, notifications, receiver,
runtime, api, inputs and pages (with `distinctions`), app; none imports a later one.
`acts` has the words of the API, the pages and `cli`.
"""
