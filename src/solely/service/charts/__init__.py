"""Charts: lines that the service and its applications declare, kept over restarts and workers, for up to a week."""
