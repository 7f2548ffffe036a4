"""Repos: reviews of merge requests, commands in comments, and Jira issues, each performed once per repository.

`webhooks` and `polling` receive what `forges/` (GitLab, GitHub) and `jira` read; `intake` accepts each job once, under
its semantic key, into the queue `jobs`; `jobs/` performs it. `concurrency` and `redis_state` offer locks and
deduplication behind protocols to other code. From the bottom up: model, concurrency, redis_state and settings, forges,
intake and jira, polling, jobs, runtime, webhooks and api, pages, app; none imports a later one, which
`tests/apps/repos/test_layers.py` checks.
"""
