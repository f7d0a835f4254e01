"""What every platform does alike when it receives."""
