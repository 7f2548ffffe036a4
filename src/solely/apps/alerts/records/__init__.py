"""Records: the history in the database."""
