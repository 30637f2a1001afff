"""The pages of exports, mappings, snapshots and engines."""
