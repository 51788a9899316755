"""What executes scan plans and writes files."""
