"""Heats: several vehicles in one race, one simulator each, coupled by contact, sight and wake."""
