"""What the tests share: servers, rows, processes, handlers, waiting."""
