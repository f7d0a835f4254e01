"""Sample documents about using Countersign, searched by default."""
