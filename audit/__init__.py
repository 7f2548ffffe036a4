"""What `scripts/audit` runs: bandit on the sources, and pip-audit on the pinned dependencies."""
