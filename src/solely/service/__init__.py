"""The service: Solely over HTTP, for any language, with health, metrics and a dashboard. It uses only public names of
the library.

`settings` configures it, `serve` runs it, `app` handles requests by `routes`, `api/` has one module of routes per noun.
"""
