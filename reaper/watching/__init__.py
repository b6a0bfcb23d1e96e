"""Looks at the broker and at who listens on it, for a person or a scrape. Changes nothing.

`connection` bounds every wait, `queues` counts messages, `workers` asks who is alive, `redis` reads
what only Redis can tell. Must not import psycopg2: `reaper.operations` looks at the database.
"""
