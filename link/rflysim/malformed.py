"""What a decoder raises on bytes that cannot be true. The receiver catches it, counts it and tells its reason once."""


class MalformedError(ValueError):
    """A payload that is not what its sensor sends; the message says why."""
