"""From pictures to position fixes: gates found, measured and recognised."""
