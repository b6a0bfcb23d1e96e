"""The rights reaper's processes and commands need, all but `reaper migrate`. One list for all.

`reaper migrate --grant` gives them, `reaper doctor` looks for what lacks, tests run with exactly
them. Holders of leases need more on the job tables: those rights are their application's business.
"""

from reaper.errors import StoreError
from reaper.store.connection import Transaction

_NEEDED = {
    "job_definitions": "SELECT",
    "job_queue": "SELECT UPDATE",
    "job_attempts": "SELECT UPDATE DELETE",  # a released claim never was an attempt
    "job_events": "SELECT INSERT",
    "job_dead_letters": "SELECT INSERT UPDATE",
    "reaper.schema_version": "SELECT",
    "reaper.terminal_hooks": "SELECT INSERT UPDATE DELETE",  # the last one for `prune`
    "reaper.hook_types": "SELECT INSERT UPDATE",
    "reaper.hook_totals": "SELECT INSERT UPDATE",
    "reaper.hook_roll_up": "SELECT UPDATE",
    "reaper.ticks": "SELECT UPDATE",
    "reaper.tick_totals": "SELECT INSERT UPDATE",
    "reaper.deferred": "SELECT INSERT UPDATE DELETE",
}

WORKER_RIGHTS = tuple(
    (table, right) for table, rights in _NEEDED.items() for right in rights.split()
)
"""(table, right) each, beside USAGE on the two schemas."""


def grant(transaction: Transaction, role: str) -> None:
    """Give `role` what it needs. Safe to repeat; takes nothing away.

    Raises:
        StoreError: there is no such role, or the connected role may not grant.
    """
    if not transaction.execute("find_role", {"role": role}):
        raise StoreError(
            f"there is no role {role!r} in this database server; create it first: "
            "CREATE ROLE name LOGIN"
        )
    parameters = {
        "role": role,
        "tables": [table for table, _ in WORKER_RIGHTS],
        "rights": [right for _, right in WORKER_RIGHTS],
    }
    transaction.execute("grant_rights", parameters)
    lacking = transaction.execute("find_ungranted", parameters)
    if lacking:  # PostgreSQL only warns where the grantor has no grant option
        shown = ", ".join(f"{right} on {table}" for table, right, _ in lacking)
        raise StoreError(
            f"the connected role may not grant {role!r} {shown}; run this as the tables' owner"
        )
