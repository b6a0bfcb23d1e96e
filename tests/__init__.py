"""The tests: real PostgreSQL, a real broker, real processes."""
