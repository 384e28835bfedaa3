"""Guidance between GO and the end: follow a plan, follow a policy, explore, excite."""
