"""The history: what happened to each key through this service, kept in the data database over restarts and workers."""
