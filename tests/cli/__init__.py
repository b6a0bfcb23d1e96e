"""The commands, as a person runs them."""
