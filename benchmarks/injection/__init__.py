"""How many attacks and how many honest tasks take a signature, on the tasks of AgentDojo."""
