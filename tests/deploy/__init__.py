"""The files that start reaper on a server."""
