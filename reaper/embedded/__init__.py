"""PostgreSQL and Valkey from wheels, for the demo, development and tests; never for production.

Both run as children of this process, in sessions of their own, so that Ctrl-C at the terminal does
not reach them. On Linux they also end with the thread that started them, even on SIGKILL. Whoever
may log in on this machine may connect. Must not import psycopg2, Redis clients or Celery.
"""

from reaper.embedded.postgres import EmbeddedPostgres, StopMode
from reaper.embedded.valkey import EmbeddedValkey

__all__ = ["EmbeddedPostgres", "EmbeddedValkey", "StopMode"]
