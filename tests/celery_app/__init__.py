"""The Celery app: its configuration, the celeryconfig.py laid over it, its real commands."""
