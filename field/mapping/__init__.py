"""`map-track`: the gates of a course from flights past them."""
