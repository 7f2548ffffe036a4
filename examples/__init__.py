"""Small services that process each order once, on four frameworks. The tests run each behind a real server."""
