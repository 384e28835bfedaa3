"""Learned policies, which replace plan and controller: network, file format, and commands."""
