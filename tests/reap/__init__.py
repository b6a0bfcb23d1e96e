"""The reap: its rules row by row, its poison, its mark, its command."""
