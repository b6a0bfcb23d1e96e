"""What a person on call does, as plain functions: look, put back, give up, retry, prune, diagnose.

The `reaper` commands are thin covers of these. One module per noun: `dead_letters`, `hooks`,
`pruning`, `overview` (the numbers of `status` and the metrics), `freshness` (is the reaper alive?)
and `diagnosis` with its checks. Must not import Celery or psycopg2: what workers and the broker
say is handed in.
"""
