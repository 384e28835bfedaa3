"""What steers between GO and the end: fly a plan, explore, excite."""
