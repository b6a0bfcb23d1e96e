"""A developer's handlers: `reaper up` finds them through REAPER_HANDLERS in its own directory."""

from pathlib import Path
from typing import Any

from reaper import JobContext, JobDeadLetterInfo, on_dead_letter


@on_dead_letter("mail")
def tell(context: JobContext, payload: Any, _dead_letter: JobDeadLetterInfo) -> None:
    Path(payload["file"]).write_text(f"{context.job_id} lost by {context.lease_owner}")
