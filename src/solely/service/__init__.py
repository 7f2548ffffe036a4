"""The service: Solely over HTTP, for any language, with health, metrics and a dashboard. It stands on public names.

`settings` says how, `serve` runs it, `app` builds it from `routes`, `api/` has one module of routes per noun.
"""
