"""`countersign setup`: guides a person, or a provisioning script, from nothing to a running bot.

`wizard` runs the steps of one subject: `slack`, `discord` or `model`. A step inspects the present state before it asks:
nothing is done twice, and an interrupted setup continues at its first open step.
"""
