"""What Flower shows of reaper's tasks."""
