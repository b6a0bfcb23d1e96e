"""The project's image under a worker container. A run of its own: `make smoke`."""
