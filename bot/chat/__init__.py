"""What every platform does alike when it receives: presses as values, verdicts, who is answered, what is said twice.

Called by the platforms' listeners. Knows the engine's and the commands' front doors and what is drawn, no platform and
no library.
"""
