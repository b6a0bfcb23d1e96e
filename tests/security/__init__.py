"""Secrets, messages, rights, TLS."""
