"""The store: connections, migrations, errors."""
