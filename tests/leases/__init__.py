"""The lease holder's side on real PostgreSQL, mostly with two connections."""
