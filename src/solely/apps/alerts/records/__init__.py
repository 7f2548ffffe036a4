"""Records: the history in the database, and notes in the store that all workers share."""
