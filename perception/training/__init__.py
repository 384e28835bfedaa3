"""Teaching of the taught detector: labelled images -> warped and relit crops -> network -> held-out figures and its card."""
