"""The classical detector: gates by the colour and the proportion of their frames; `detector.py` shows its stages in order."""
