"""Dead letters: work that failed, kept until it is replayed or purged."""
