"""Celery settings of this deployment: an example to edit. Read where a command is started.

Everything here is optional: reaper has defaults for all of it, and `REAPER_*` environment variables
win over this file. Schedules and routes are merged with reaper's own, not replaced. Handlers'
modules named in `imports` are imported by hook workers only.
"""

# The broker; REAPER_BROKER_URL wins. Give reaper a Redis database of its own, or keep the prefix.
# broker_url = "redis://127.0.0.1:6379/0"

# Settings of reaper itself, where the environment does not set them (docs/operations.md).
# reaper_interval_seconds = 15
# reaper_claim_batch_size = 500

# Modules with @on_dead_letter handlers, as in REAPER_HANDLERS.
# imports = ("myproject.dead_letters",)

# Events feed Flower. They cost about a third of a hook worker's throughput on empty hooks; without
# Flower turn them off.
worker_send_task_events = True

# Tasks of your own beside reaper's:
# beat_schedule = {
#     "nightly": {"task": "myproject.nightly", "schedule": 86_400.0},
# }
