"""A soak with a seed, a length and a report: kill everything at random, then prove nothing lost."""
