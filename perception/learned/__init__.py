"""The learned detector: a network proposes gates, the image's edges verify them; `detector.py` shows its stages in order."""
