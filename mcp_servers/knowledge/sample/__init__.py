"""Sample documents about using Countersign, searched when no other folder is named."""
