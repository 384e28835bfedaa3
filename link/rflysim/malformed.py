"""Exception of decoders for invalid bytes. The receiver catches it, counts it and reports its reason once."""


class MalformedError(ValueError):
    """A payload that does not match its sensor; the message gives the reason."""
