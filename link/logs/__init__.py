"""Readers of logs from pilots' tools, autopilots and motion capture, as typed signals."""
