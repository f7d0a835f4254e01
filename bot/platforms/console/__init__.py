"""The terminal: a chat on a live screen, one question (`-m`), or a pipe.

`console.py` is the door. A listener (`interactive.py`, `batch.py`) hands in what is typed, the surface
(`surface.py`) draws views through one of three drawings (`page.py`, and the two in `streams.py`), and `watch.py` is
what they know of each other. Commands go their way in `errands.py`, and `filling.py` fills in their forms. Libraries
for terminals stop at `screen.py`, `completion.py`, `history.py` and `markdown.py`.
"""
