"""Repos: reviews of merge requests, commands in comments, and Jira issues, each performed once per repository.

`forges/` read what GitLab and GitHub send and list, `jira` what Jira lists; `intake` accepts each job once, under its
semantic key, into the queue `jobs`; `jobs/` performs it. `concurrency` and `redis_state` offer the protocols of locks
and deduplication stores on the primitives of the library. From the bottom up: model, figures, concurrency, redis_state,
forges, settings, intake, jira and pollers, jobs, runtime, webhooks and pages, app; none imports a later one.
"""
