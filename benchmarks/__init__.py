"""The benchmark suite: `make bench`. Ratios measured in one run, medians of interleaved rounds."""
