"""Dead letters: failed work, kept until it is replayed or purged."""
