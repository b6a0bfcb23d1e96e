"""Metrics for Prometheus and the dead-man's switch, read on each scrape.

`reading` asks the database and the broker, each within a bounded time; `families` turns the answers
into metrics; `health` decides `/healthz`; `server` answers HTTP. Needs the extra `exporter`.
"""
