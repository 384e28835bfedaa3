"""Gate detection in images, association with the track, and position fixes.

image -> a detector (`classical/detector.py` or `learned/detector.py`) -> Detection   corners with covariances
Detection, prior -> association.py -> GateSighting                                    gate's identity and position fix
state -> roi.py -> SearchWindow                                                       region of interest in the next image
"""
