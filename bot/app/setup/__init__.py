"""`countersign setup`: guides a person, or a provisioning script, from nothing to a bot that runs.

`wizard` runs the steps of one subject; `slack`, `discord` and `model` have them. A step looks at what is there before
it asks: nothing is done twice, and an interrupted setup goes on where it stopped.
"""
