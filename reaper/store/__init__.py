"""The only place that knows psycopg2: connections, and one function per statement.

One module per noun: `reaping` (expired leases), `ledger` (owed hooks), `leasing` (the lease
holder's side), `schema` (migrations). Each function runs the file of its own name in `reaper/sql`.
"""

from reaper.store.connection import Database, Transaction

__all__ = ["Database", "Transaction"]
