"""Gate detection in images, association with the track, and position fixes.

image -> a detector (`classical/`, `learned/` or `taught/detector.py`) -> Detection   corners with covariances
Detection, prior -> association.py -> GateSighting                                    gate's identity and position fix
state -> roi.py -> SearchWindow                                                       region of interest in the next image
networks.py: what the networks of `learned/` and `taught/` share
"""
