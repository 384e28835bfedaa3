"""Monte-Carlo campaigns, `race-bench`: flights over settings, seeds and tracks, on one machine or a cluster."""
