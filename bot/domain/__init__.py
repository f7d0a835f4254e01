"""The words of the product as plain values: frozen, comparable, standard library only.

Identity on disk, JSON shapes and wire formats are other folders' business.
"""
