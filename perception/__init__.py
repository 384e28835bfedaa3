"""From images to position fixes.

image -> a detector (`classical/detector.py` or `learned/detector.py`) -> Detection   corners with covariances
Detection, prior -> association.py -> GateSighting                                    which gate it is, and the fix
state -> roi.py -> SearchWindow                                                       where the next image is searched
"""
