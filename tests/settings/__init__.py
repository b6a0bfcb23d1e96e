"""Settings: where they come from, what they take, how a bad one is told."""
