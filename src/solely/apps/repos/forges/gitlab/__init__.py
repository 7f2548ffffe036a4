"""GitLab, as a forge."""
