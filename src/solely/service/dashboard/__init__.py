"""The dashboard: what is held, done, parked and how it goes, for people; and what an admin may do about it.

Each view is one function that looks and answers plain data. The same data is shown as a page, as JSON and as a live
stream. Pages are made here and work without JavaScript; with it they are live.
"""
