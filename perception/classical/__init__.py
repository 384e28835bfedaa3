"""Classical detector: gates by the colour and the proportions of their frames; `detector.py` has its stages in order."""
