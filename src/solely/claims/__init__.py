"""Claims (idempotency): one caller runs the work, everyone else gets its result."""
