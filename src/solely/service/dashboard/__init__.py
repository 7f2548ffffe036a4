"""The dashboard: entries, dead letters, metrics and events for people, and the actions of admins.

Each view is one function that loads plain data. The same data is shown as a page, as JSON and as a live stream. Pages
are rendered on the server and work without JavaScript; with it they are live.
"""
