"""The same 10,000 stalled jobs taken back by other PostgreSQL queues: `make bench-peers`."""
