"""The embedded servers."""
