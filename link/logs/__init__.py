"""Logs of the field, as typed signals: what pilots' tools, autopilots and motion capture have written."""
