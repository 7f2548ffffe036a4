"""Records: what outlives a process, notes in the store and the history in the database."""
