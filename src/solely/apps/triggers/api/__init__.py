"""The task-trigger API over HTTP. Where trigger.dev's public client has the same call, its shapes are accepted."""
