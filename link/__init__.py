"""The link: bytes to typed messages, and back."""
