"""Learned detector: a network proposes gates, measured edges verify them; `detector.py` has its stages in order."""
