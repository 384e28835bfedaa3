"""What a flight leaves behind, and what people see of it meanwhile."""
