"""Gate detection in images, association with the track, and position fixes.

image -> a detector (`classical/`, or `taught/detector.py`) -> Detection   corners with covariances
Detection, prior -> association.py -> GateSighting                                    gate's identity and position fix
state -> roi.py -> SearchWindow                                                       region of interest in the next image
training/: teaching of the network that `taught/` runs, and that proposes gates to the classical detector
"""
