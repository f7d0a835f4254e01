"""Rules of admins, and the explanation of the rule that counts for a call."""
