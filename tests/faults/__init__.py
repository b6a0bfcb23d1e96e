"""Faults: servers, processes and settings that break, and what must hold."""
