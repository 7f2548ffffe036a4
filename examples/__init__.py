"""Small services that take each order once, on four frameworks. Each is run by the tests, behind a real server."""
