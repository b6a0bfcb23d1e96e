"""Log lines of real processes."""
