"""Detector of gates that `train-detector` taught, from a network's file; `detector.py` has its stages in order."""
