"""The commands of exports, mappings, snapshots and engines."""
