"""Benchmarks: ratios against a hand-written floor and against the peers people would otherwise pick."""
