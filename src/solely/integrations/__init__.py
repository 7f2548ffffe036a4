"""Solely inside frameworks, one small file each; what a file needs beyond the core it imports itself."""
