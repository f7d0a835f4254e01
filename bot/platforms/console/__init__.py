"""Terminal platform: a chat on a live screen, one question (`-m`), or a pipe.

`console.py` has the entry points. A listener (`interactive.py`, `headless.py`) passes on the input, and the surface
renders views (`transcript.py`, `plain_output.py`). Both share the `turn_tracker.py`.
"""
