"""Hard use, at length: what a test cannot do in seconds. `make torture` runs all of it; docs/reliability.md tells."""
